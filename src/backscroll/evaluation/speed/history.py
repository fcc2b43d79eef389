"""A history of any length with its vectors, made of a file's lines, or of made-up words.

The first pass is the words as they are, and their vectors are the embedder's. Each later pass says them again with
other names, other numbers and later dates, and its vectors are those of the first with noise added: a vector of length
.3 to .8 in a random direction, so that a copy is about as near to its line as a rewording. Each line has one vector.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, count, islice, product
from pathlib import Path

import numpy as np

from backscroll.errors import ImportFileError
from backscroll.evaluation.datasets import Conversation, read_conversations, read_questions
from backscroll.messages import is_empty
from backscroll.protocols import Embedder
from backscroll.types import Message, Vectors

MAX_BASE_LINES = 5_000  # embedded for real: some ten seconds
THREAD_LINES = 500
_ASKED_WORDS = 20
_DAYS_APART = 37  # of a pass to the one before
_NOISE = (0.3, 0.8)
_DIGIT = re.compile(r"\d")
_NAMES = (
    "Alma Bruno Clara Dmitri Esther Farid Greta Hugo Irina Jonas Keiko Lars Mina Noor Oscar Petra Quinn Rosa Stefan "
    "Tara Ugo Vera Wim Xenia Yusuf Zoe"
).split()
_MADE_UP_LINES, _MADE_UP_WORDS, _STOP_WORDS = 2_000, 8_000, 100

Threads = Iterator[tuple[str, list[Message], Vectors]]


@dataclass(frozen=True, slots=True)
class History:
    """What is said again and again.

    Attributes:
        about: where the words are from, for the figures.
        messages: of the first pass.
        vectors: (n, d), one for each message.
        questions: that are asked of it; the messages' own words where there are none.
    """

    about: str
    messages: Sequence[Message]
    vectors: Vectors
    questions: Sequence[str] = ()

    def drawn(self, most: int, seed: int) -> list[str]:
        """So many of the questions by chance, each once, or all; else of the first words of messages.

        None twice: the embedder remembers the newest texts, and the yardstick none.
        """
        said = self.questions or [" ".join(one.text.split()[:_ASKED_WORDS]) for one in self.messages]
        different = list(dict.fromkeys(said))
        return random.Random(seed).sample(different, min(most, len(different)))  # noqa: S311

    def threads(self, lines: int, begin: int = 0, each: int = THREAD_LINES) -> Threads:
        """Threads of `each` lines with their vectors, from line number `begin` up to `lines`."""
        said = self._said(begin)
        for first in range(begin, lines, each):
            part = list(islice(said, min(each, lines - first)))
            places, passes = np.array([place for place, _, _ in part]), np.array([again for _, again, _ in part])
            yield f"thread {first}", [message for _, _, message in part], self._vectors(places, passes, first)

    def _said(self, begin: int) -> Iterator[tuple[int, int, Message]]:
        for number in count(begin):
            again, place = divmod(number, len(self.messages))
            yield place, again, said_again(self.messages[place], again)

    def _vectors(self, places: np.ndarray, passes: np.ndarray, seed: int) -> Vectors:
        vectors = self.vectors[places].copy()
        chance = np.random.default_rng(seed)
        noise = chance.standard_normal(vectors.shape, dtype=np.float32)
        noise *= chance.uniform(*_NOISE, (len(noise), 1)).astype(np.float32) / _lengths(noise)
        vectors[passes > 0] += noise[passes > 0]
        made: Vectors = vectors / _lengths(vectors)
        return made


def said_again(message: Message, again: int) -> Message:
    """The message as it is said in a later pass; the first, number 0, changes nothing but its id."""
    if again == 0:
        return message._replace(id=None)
    payload = dict(message.payload)
    text = _DIGIT.sub(lambda digit: str((int(digit[0]) + again) % 10), message.text)
    if name := payload.get("name"):
        payload["name"] = _NAMES[(sum(map(ord, str(name))) + again) % len(_NAMES)]
        text = text.replace(str(name), str(payload["name"]))
    at = message.created_at and message.created_at + timedelta(days=_DAYS_APART * again)
    return message._replace(payload=payload | {"content": text}, text=text, id=None, created_at=at)


def history_of(path: Path | None, embedder: Embedder, ask: Path | None = None) -> History:
    """The lines of a file in the common line form, or made-up ones, and the questions of another file.

    Raises: ImportFileError, EmbedderError.
    """
    conversations = {} if path is None else read_conversations(path)
    messages = _made_up() if path is None else _messages(path, conversations)
    questions = [] if ask is None else [one.text for one in read_questions(ask, conversations).asked]
    if ask is not None and not questions:
        raise ImportFileError(str(ask), None, "there is no question in it that can be asked")
    texts = [f"{one.payload['name']}: {one.text}" if one.payload.get("name") else one.text for one in messages]
    about = f"{len(messages):,} lines of {'made-up words' if path is None else path.name}, said again"
    if ask is not None:
        about += f"; {len(questions):,} questions of {ask.name}"
    return History(about, messages, embedder.embed(texts), questions)


def _messages(path: Path, conversations: Mapping[str, Conversation]) -> list[Message]:
    found = [
        message
        for conversation in conversations.values()
        for messages in conversation.threads.values()
        for message in messages
        if not is_empty(message.payload) and isinstance(message.payload.get("content"), str)
    ]
    if not found:
        raise ImportFileError(str(path), None, "there is no line with a text in it")
    return found[:MAX_BASE_LINES]


def _made_up() -> list[Message]:
    """Words by Zipf's law less its first ones, which would be stop words; 6 to 24 a line."""
    chance = random.Random(1)  # noqa: S311
    syllables = [c + v for c, v in product("bdfghklmnprstvz", "aeiou")]
    words = ["".join(parts) for parts in product(syllables, repeat=3)]
    chance.shuffle(words)
    weights = list(accumulate(1 / (n + _STOP_WORDS) for n in range(1, _MADE_UP_WORDS + 1)))
    made = []
    for number in range(_MADE_UP_LINES):
        text = " ".join(chance.choices(words[:_MADE_UP_WORDS], cum_weights=weights, k=chance.randint(6, 24)))
        role = ("user", "assistant")[number % 2]
        made.append(Message(role, {"role": role, "content": text}, text))
    return made


def _lengths(vectors: np.ndarray) -> np.ndarray:
    lengths: np.ndarray = np.linalg.norm(vectors, axis=1, keepdims=True)
    return lengths

"""Tokens of a text, of a message, of tools' schemas: what is counted, and what is estimated.

Exact for the texts of OpenAI's models and of any model whose ``tokenizer.json`` is at hand. What a provider adds
around the texts is not published; it is estimated here, and stated:

    a message                  3 tokens, a name 1 more; the reply is opened by 3
    a call                     its id, name and arguments, and 8
    a tool's schema            its JSON, and 8
    an image                   85 at low detail, else 1,445 (the most that a picture of 2048 x 2048 costs on GPT-4o)
    audio                      one token per 1,600 encoded bytes, at least 100
    a file                     one token per 4 bytes of its data, at least 1,500
    any other part             its JSON
    any other key              of a message or of one of those parts, where it is not empty: its JSON

Knows nothing about budgets, threads or stores.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from backscroll.errors import MessageError, NotFoundError
from backscroll.protocols import Counting, TokenCounter

TOKENS_PER_CALL = 8
TOKENS_PER_TOOL = 8
IMAGE_TOKENS_LOW, IMAGE_TOKENS = 85, 1445
AUDIO_BYTES_PER_TOKEN, AUDIO_TOKENS_MIN = 1600, 100
FILE_BYTES_PER_TOKEN, FILE_TOKENS_MIN = 4, 1500
DEFAULT_VOCABULARY = "o200k_base"
_VOCABULARIES = ("o200k_base", "cl100k_base")
_MODELS = (  # the first start of a model's name that fits; tiktoken maps them the same way
    ("gpt-4o", "o200k_base"),
    ("gpt-4.", "o200k_base"),
    ("gpt-5", "o200k_base"),
    ("gpt-oss", "o200k_base"),
    ("chatgpt-4o", "o200k_base"),
    ("o1", "o200k_base"),
    ("o3", "o200k_base"),
    ("o4", "o200k_base"),
    ("gpt-4", "cl100k_base"),
    ("gpt-3.5", "cl100k_base"),
    ("gpt-35", "cl100k_base"),
)
_REMEMBERED_TEXTS = 16_384  # a window's messages are counted again at every turn: 75 ms instead of 340 for 100k tokens
_DIGEST_BYTES = 16  # by which a longer text is remembered
_PIECE_CHARACTERS = 40_000  # 4 tokens each at most; bpe-openai refuses texts of more than 200,000
_PLAIN_KEYS = frozenset({"role", "content", "name"})
_COUNTED_KEYS = frozenset({"role", "content", "name", "refusal", "tool_calls", "tool_call_id"})

# What is no letter: ASCII signs, digits and spaces; Latin-1's and Unicode's signs, dingbats and box drawing; CJK
# punctuation; variation selectors; full-width signs and digits; everything in four bytes, emoji above all.
_NO_LETTER = r"\x00-@\[-`{-\xbf\u2000-\u2bff\u3000-\u3011\ufe00-\ufe0f\uff00-\uff20\U00010000-\U0010ffff"
_BETWEEN_WORDS = re.compile(f"[{_NO_LETTER}]+")
_WORD = re.compile(f" ?[^{_NO_LETTER}]+")
_COMMON_SIGNS = str.maketrans(dict.fromkeys("–—‘’“”…、。，", "--"))  # 2 tokens in old vocabularies, not one per byte


class VocabularyCounter:
    """Counts by one of OpenAI's vocabularies, exactly and offline.

    Source: the vocabularies in the package bpe-openai; equal to tiktoken's counts.
    """

    tokens_per_message = 3
    tokens_per_name = 1
    tokens_per_reply = 3

    def __init__(self, vocabulary: str) -> None:
        self.name = vocabulary
        self._count = _remembering(_vocabulary(vocabulary))

    def count(self, text: str) -> int:
        """Number of tokens; a special token's name in the text is counted as the ordinary text that it is.

        A text of more than 40,000 characters is counted in pieces: at most a few tokens a piece too many.
        """
        return self._count(text)


class TokenizerFileCounter:
    """Counts by a Hugging Face ``tokenizer.json``, exactly and offline."""

    tokens_per_message = 5  # the markers of chat templates: ChatML has 5, Llama 3's headers 5
    tokens_per_name = 1
    tokens_per_reply = 4

    def __init__(self, path: str) -> None:
        if not Path(path).is_file():
            raise NotFoundError(f"no tokenizer file at {path}: give the path of a tokenizer.json")
        tokenizer = import_module("tokenizers").Tokenizer.from_file(path)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.name = path
        self._count = _remembering(lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))

    def count(self, text: str) -> int:
        """Number of tokens, special ones that a template would add left out; long texts in pieces, as above."""
        return self._count(text)


class OverestimateCounter:
    """Counts for a model whose vocabulary is not known, so that the true number is lower.

    Words: a third more than o200k_base or cl100k_base gives, whichever is more, and a token more for every three
    letters outside ASCII. Everything else, which some vocabularies spell byte by byte: a token per UTF-8 byte, thus one
    per digit, sign and line end, and per space but the one in front of a word; two per dash or quotation mark. And one
    for the text's start, which SentencePiece marks.
    """

    tokens_per_message = 6
    tokens_per_name = 2
    tokens_per_reply = 6

    def __init__(self, model: str) -> None:
        self.name = f"overestimate for {model}"
        self._count = _remembering(_overestimate)

    def count(self, text: str) -> int:
        """An upper estimate of the number of tokens."""
        return self._count(text)


def open_counter(model: str | None = None) -> TokenCounter:
    """The counter for a model.

    Args:
        model: an OpenAI model's name, upper or lower case, behind a provider's path or ``ft:`` too; ``o200k_base`` or
            ``cl100k_base``; the path of a ``tokenizer.json``; or any other name, which is then overestimated. None
            counts as o200k_base.

    Raises: NotFoundError when a ``.json`` path does not exist; MessageError when the name is empty or no text.

        >>> open_counter("azure/gpt-4o").name, open_counter("gpt-4").name, open_counter("my-model").name
        ('o200k_base', 'cl100k_base', 'overestimate for my-model')
    """
    if model is not None and (not isinstance(model, str) or not model.strip()):
        raise MessageError(f"model is a model's name, or None to count as {DEFAULT_VOCABULARY}, not {model!r}")
    return _opened(DEFAULT_VOCABULARY if model is None else model)


def count_stored(text: str) -> int:
    """Tokens of a text by the counter that stored lines are counted by, whatever model is asked for."""
    return open_counter(DEFAULT_VOCABULARY).count(text)


@lru_cache(maxsize=32)
def _opened(model: str) -> TokenCounter:
    if model in _VOCABULARIES:
        return VocabularyCounter(model)
    if model.endswith(".json"):
        return TokenizerFileCounter(model)
    bare = model.strip().lower().rpartition("/")[2].removeprefix("ft:")
    vocabulary = next((vocabulary for start, vocabulary in _MODELS if bare.startswith(start)), None)
    return _opened(vocabulary) if vocabulary else OverestimateCounter(model)


@lru_cache(maxsize=len(_VOCABULARIES))
def _vocabulary(name: str) -> Counting:
    count: Counting = _compiled().tokenizer_for_encoding(name).count
    return count


@lru_cache(maxsize=1)
def _compiled() -> Any:
    """The compiled part of bpe-openai, alone.

    Importing the package reads three vocabularies into dicts that nothing here asks for: 1.3 s of work on an older
    core and 76 MB in every process that counts a token.
    """
    package = find_spec("bpe_openai")
    part = PathFinder.find_spec("_bindings", package.submodule_search_locations) if package else None
    if part is None or part.loader is None:
        return import_module("bpe_openai._bindings")
    module = module_from_spec(part)
    part.loader.exec_module(module)
    return module


def _overestimate(text: str) -> int:
    words = _BETWEEN_WORDS.sub(" ", text).strip(" ")
    rest = _WORD.sub("", text).translate(_COMMON_SIGNS)
    tokens = max(_vocabulary(name)(words) for name in _VOCABULARIES)
    outside_ascii = 0 if words.isascii() else sum(c > "\x7f" for c in words)
    return math.ceil((tokens * 4 + outside_ascii) / 3) + len(rest.encode()) + 1


def _remembering(count: Counting) -> Counting:
    """The same count, of long texts in pieces. Remembers texts by their digests: a long text must not stay in RAM.

    One that is no longer than its digest, such as a name, is remembered itself.
    """
    known: dict[str | bytes, int] = {}

    def counted(text: str) -> int:
        if not text:
            return 0
        if len(text) > _PIECE_CHARACTERS:
            return sum(counted(piece) + spare for piece, spare in _pieces(text))
        key = text if len(text) <= _DIGEST_BYTES else blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
        found = known.get(key)
        if found is None:
            if len(known) >= _REMEMBERED_TEXTS:
                known.clear()  # what is in use comes back at the next turn; threads need no lock for it
            found = known[key] = count(text)
        return found

    return counted


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """A text in pieces that can be counted, and a token to spare for each that ends within a word.

    A space belongs to the word behind it, so that a cut in front of one parts no token. Any other cut may part one
    into more, and in one of a hundred cases lets the rest come together as one less (13,000 cuts, 2026-11).
    """
    start = 0
    while len(text) - start > _PIECE_CHARACTERS:
        space = text.rfind(" ", start + 1, start + _PIECE_CHARACTERS)
        stop = space if space > 0 else start + _PIECE_CHARACTERS
        yield text[start:stop], int(space < 0)
        start = stop
    yield text[start:], 0


def message_tokens(payload: Mapping[str, Any], counter: TokenCounter) -> int:
    """Tokens of one message as a provider counts it, without the opening of the reply.

    >>> message_tokens({"role": "user", "content": "Hello there!"}, open_counter())
    6
    """
    total = counter.tokens_per_message + _content_tokens(payload.get("content"), counter)
    if payload.get("name"):
        total += counter.tokens_per_name + counter.count(str(payload["name"]))
    if payload.keys() <= _PLAIN_KEYS:  # nearly every message has no more
        return total
    for key in ("refusal", "tool_call_id"):
        if payload.get(key):
            total += counter.count(str(payload[key]))
    for call in payload.get("tool_calls") or ():
        total += TOKENS_PER_CALL + counter.count(_json(call))
    return total + _beside_tokens(payload, _COUNTED_KEYS, counter)


def tools_tokens(tools: Iterable[Mapping[str, Any]], counter: TokenCounter) -> int:
    """Tokens of tools' schemas: their JSON, and 8 each.

    Raises: MessageError for a tool that is no dict, or that is not made of JSON values.
    """
    return sum(TOKENS_PER_TOOL + counter.count(_checked_json(place, tool)) for place, tool in enumerate(tools))


def _checked_json(place: int, tool: object) -> str:
    if not isinstance(tool, dict):
        raise MessageError(f"tool {place}: a tool is a dict with a type and its schema, not {type(tool).__name__}")
    try:
        text = _json(tool)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"tool {place}: a tool is a dict made of JSON values: {error}") from error
    return text


def _beside_tokens(holder: Mapping[str, Any], counted: frozenset[str], counter: TokenCounter) -> int:
    """Tokens of the keys that are sent along and counted nowhere else, such as ``reasoning_content``."""
    beside = {key: value for key, value in holder.items() if value and key not in counted}
    return counter.count(_json(beside)) if beside else 0


def _content_tokens(content: object, counter: TokenCounter) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return counter.count(content)
    if not isinstance(content, list):
        return counter.count(str(content))
    return sum(_part_tokens(part, counter) for part in content)


def _part_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    kind = str(part.get("type"))
    if kind not in _PARTS:
        return counter.count(_json(part))
    return _PARTS[kind](part, counter) + _beside_tokens(part, frozenset({"type", kind}), counter)


def _text_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    return counter.count(str(part.get(part["type"]) or "")) + 1  # the line end where texts are joined


def _image_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    image = part.get("image_url")
    low = isinstance(image, Mapping) and image.get("detail") == "low"
    return IMAGE_TOKENS_LOW if low else IMAGE_TOKENS


def _audio_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    return max(AUDIO_TOKENS_MIN, _data_bytes(part.get("input_audio"), "data") // AUDIO_BYTES_PER_TOKEN)


def _file_tokens(part: Mapping[str, Any], counter: TokenCounter) -> int:
    return max(FILE_TOKENS_MIN, _data_bytes(part.get("file"), "file_data") // FILE_BYTES_PER_TOKEN)


def _data_bytes(holder: object, key: str) -> int:
    data = holder.get(key) if isinstance(holder, Mapping) else None
    return len(data) * 3 // 4 if isinstance(data, str) else 0  # base64 holds 3 bytes in 4 characters


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_PARTS: dict[str, Callable[[Mapping[str, Any], TokenCounter], int]] = {
    "text": _text_tokens,
    "refusal": _text_tokens,
    "image_url": _image_tokens,
    "input_audio": _audio_tokens,
    "file": _file_tokens,
}

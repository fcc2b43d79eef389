"""What a turn is made of: the prompt and what of it is stored already, the model's answer, the lines to store.

    prompt -> Exchange (new, in progress, or answered) -> [context -> LLM -> append(prompt, reply)] -> Turn

The order of a turn is written in `memory.py`. What is sent is made there; here nothing is injected, so that what is
stored is what was said.
"""

import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from types import MappingProxyType, TracebackType
from typing import Any

from backscroll.anchors import INSTRUCTING
from backscroll.answer import checked, to_store
from backscroll.context import Context
from backscroll.errors import (
    BudgetError,
    ContextTooLongError,
    LLMError,
    LLMUnavailableError,
    MessageError,
)
from backscroll.exchanges import atoms, call_ids
from backscroll.fingerprint import says_the_same
from backscroll.messages import is_empty, paired, parse_message
from backscroll.protocols import LLM
from backscroll.tools import Tools
from backscroll.types import Line, Message, Reply, ReplyOptions, Source, Usage

PARTIAL = "partial"  # in a line's metadata: the caller left before the reply's end
CONTEXT_TOKENS, LATENCY, PRESET = "context_tokens", "latency_ms", "preset"  # there too: what it was sent, and its time
ABANDONED = (GeneratorExit, KeyboardInterrupt)  # the caller leaves: what was received is stored
_SHRUNK_SHARE = 0.75  # of what the model says it takes: counts differ, and the reply needs room
_SHRUNK_BLINDLY = 0.5  # of what was sent, where it does not say


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt and its reply, stored.

    Attributes:
        reply: what the model answered last, as it came.
        context: what it was sent for that; None where the reply was stored already.
        sources: where the turn's lines stand, in order: the prompt, calls and results, the reply.
    """

    reply: Reply
    context: Context | None
    sources: tuple[Source, ...]

    @property
    def text(self) -> str:
        """What the model said."""
        return self.reply.text

    @property
    def message(self) -> Mapping[str, Any]:
        """The reply as an OpenAI-style dict."""
        return self.reply.message

    @property
    def tool_calls(self) -> Sequence[Mapping[str, Any]]:
        """The calls that the caller is to answer."""
        return self.reply.message.get("tool_calls") or ()

    def __str__(self) -> str:
        """What the model said."""
        return self.text


class ReplyStream(Iterator[str]):
    """A reply's text as it comes: iterate over it; `turn` is there when it has ended.

    Whoever leaves before the end closes it, by `with`, `close()` or by letting go of it: what was received is then
    stored, marked as partial.

    Attributes:
        turn: the prompt and its reply as they were stored; None until the end.
    """

    def __init__(self, pieces: Generator[str, None, Turn], sent: Sequence[Context] = ()) -> None:
        """Take the turn that is going on, and the contexts that it makes, which are appended by it."""
        self.turn: Turn | None = None
        self._pieces = pieces
        self._sent = sent
        self._turning = threading.Lock()  # one thread may wait for a piece while another closes

    @property
    def context(self) -> Context | None:
        """What the model was sent last, also where it failed or was left; None before that."""
        return self._sent[-1] if self._sent else None

    def __next__(self) -> str:
        """The next piece of text."""
        with self._turning:
            try:
                return next(self._pieces)
            except StopIteration as end:
                self.turn = self.turn or end.value
                raise

    def close(self) -> None:
        """Leave; at the end already, this does nothing."""
        with self._turning:
            self._pieces.close()

    def __enter__(self) -> "ReplyStream":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def finished(pieces: Generator[str, None, Turn]) -> Turn:
    """The turn, when all its pieces have come."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            turn: Turn = end.value
            return turn


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a turn answers, and how much of it is stored.

    Attributes:
        id: the prompt's; the ids of the lines behind it are made of it.
        new: the prompt where it is not stored yet; None asks for what is stored.
        stored: where those of its lines stand that are stored.
        next_place: how many positions behind the prompt its next line will stand.
        answer: the line that answers it already, where there is one.
    """

    id: str
    new: Message | None = None
    stored: tuple[Source, ...] = ()
    next_place: int = 1
    answer: Line | None = None

    def lines(self, messages: Sequence[Message]) -> list[Message]:
        """The messages to store in one go: the prompt if it is new, and what follows it.

        Their ids are made of the prompt's, so that storing them twice is storing them once.
        """
        places = range(self.next_place, self.next_place + len(messages))
        behind = [one._replace(id=f"{self.id}/{place}") for place, one in zip(places, messages, strict=True)]
        return [self.new, *behind] if self.new is not None else behind

    def followed(self, lines: Sequence[Line]) -> "Exchange":
        """The exchange with the lines of it that were stored now."""
        behind = len(lines) - (self.new is not None)
        stored = (*self.stored, *(line.source for line in lines))
        return replace(self, new=None, stored=stored, next_place=self.next_place + behind)


@dataclass(frozen=True, slots=True)
class Replying:
    """How a turn is made.

    Attributes:
        llm: who answers.
        tools: what it may call.
        fit: (exchange, max_tokens) -> the context to send.
        streams: whether the reply comes in pieces.
        keep_prompt: whether the prompt is stored where the reply fails.
    """

    llm: LLM
    tools: Tools
    fit: Callable[[Exchange, int], Context]
    streams: bool
    keep_prompt: bool


def open_exchange(prompt: Message | None, newest: Sequence[Line]) -> Exchange:
    """See what of a prompt is stored already.

    It is where its id is; without an id, where the same message stands in the exchange in progress, and nothing but
    calls and results follows it: a turn that failed goes on from there. One that the chat went past without an answer
    is asked again at the end, and so is one with an id whose reply's reader left.

    Args:
        prompt: the prompt, or None for what is stored.
        newest: the newest lines of the thread, oldest first, down to the exchange in progress; for a prompt with an id
            from its own line on, where it is stored.

    Raises: MessageError for None where nothing is stored, what is stored is answered, or a call lacks a result; for an
        id that another line has.
    """
    place = _place(prompt, newest)
    if place is None:
        if prompt is None:
            raise MessageError("nothing is stored in this thread yet: give a prompt")
        named = prompt._replace(id=prompt.id or uuid.uuid4().hex)
        return Exchange(str(named.id), new=named)
    asked = newest[place]
    if prompt is not None and not says_the_same(asked.message, prompt):
        raise MessageError(f"the id {prompt.id!r} is that of another line, which says something else: give a new one")
    next_place = newest[-1].position - asked.position + 1
    own = [asked, *takewhile(lambda line: line.message.role != "user", newest[place + 1 :])]
    if prompt is None:
        _check_is_open(own)
    whole = (i for i in range(1, len(own)) if _answers(own[i]) and not own[i].message.metadata.get(PARTIAL))
    answer = None if prompt is None else next(whole, None)
    if answer is not None:
        stored = tuple(line.source for line in own[: answer + 1])
        return Exchange(asked.id, stored=stored, answer=own[answer])
    is_left = prompt is not None and any(_answers(line) for line in own[1:])
    if is_left or len(own) < len(newest) - place:
        return Exchange(asked.id, new=asked.message, next_place=next_place)
    return Exchange(asked.id, stored=tuple(line.source for line in own), next_place=next_place)


def fit_and_ask(
    exchange: Exchange, replying: Replying, max_tokens: int, received: list[str]
) -> Generator[str, None, tuple[Context, Reply]]:
    """The context for an exchange, and the model's reply to it.

    A model that takes less than was sent is asked once more with as much as it says that it takes.

    Args:
        received: the pieces of the reply so far, kept for the caller.
    """
    received.clear()
    context = replying.fit(exchange, max_tokens)
    try:
        reply = yield from ask(replying, context, received)
    except ContextTooLongError as refused:
        if received:
            raise
        context = _fit_less(exchange, replying, context, refused)
        reply = yield from ask(replying, context, received)
    return context, reply


def ask(replying: Replying, context: Context, received: list[str]) -> Generator[str, None, Reply]:
    """The model's reply; its pieces are yielded as they come, and noted in `received`.

    Raises: LLMError where there is none, or it is nothing, or cut off.
    """
    options = ReplyOptions(tools=replying.tools.told())
    if not replying.streams:
        return checked(replying.llm.complete(context.messages, options))
    reply = None
    try:
        with closing(replying.llm.stream(context.messages, options)) as pieces:
            for piece in pieces:
                if isinstance(piece, Reply):
                    reply = piece
                else:
                    received.append(piece)
                    yield piece
    except LLMError as error:
        error.received = error.received or "".join(received)
        raise
    if reply is None:
        raise LLMUnavailableError("the stream ended without a reply", received="".join(received))
    return checked(reply)


def _fit_less(exchange: Exchange, replying: Replying, context: Context, refused: ContextTooLongError) -> Context:
    """A context that the model may take; where the prompt alone is too long for it, its refusal stands."""
    try:
        return replying.fit(exchange, _shrunk(context, refused))
    except BudgetError as error:
        raise refused from error


def _shrunk(context: Context, refused: ContextTooLongError) -> int:
    """The budget to try once more with: what the model says it takes, or half of what it refused."""
    if refused.limit is None:
        return max(1, int(context.tokens * _SHRUNK_BLINDLY))
    return max(1, int(min(refused.limit, context.tokens) * _SHRUNK_SHARE))


def sent(context: Context, began: float) -> dict[str, Any]:
    """What a reply was sent and how long it took, for its metadata.

    Args:
        began: `time.monotonic` when its context was asked for.
    """
    took = round((time.monotonic() - began) * 1000)
    return {CONTEXT_TOKENS: context.tokens, LATENCY: took, PRESET: context.report.preset}


def said(reply: Reply, noted: Mapping[str, Any] = MappingProxyType({})) -> Message:
    """The reply as a message to store, with what it cost in its metadata, and what else is noted of it."""
    usage = {key: value for key, value in asdict(reply.usage).items() if value is not None} if reply.usage else None
    known = {"model": reply.model, "finish_reason": reply.finish_reason, "usage": usage, PARTIAL: reply.is_partial}
    told = {key: value for key, value in known.items() if value}
    return parse_message({**to_store(reply.message, reply.is_partial), "metadata": {**told, **noted}})


def left_behind(received: Sequence[str], model: str | None) -> list[Message]:
    """What was received of a reply that the caller left, as a message to store; none where there was nothing."""
    message = to_store({"role": "assistant", "content": paired("".join(received))}, is_partial=True)
    return [] if is_empty(message) else [said(Reply(message, "", None, model, is_partial=True))]


def as_stored(reply: Reply, line: Line) -> Reply:
    """The reply, or the one that another call of the same prompt stored before it."""
    return reply if line.message.payload == to_store(reply.message, reply.is_partial) else stored_reply(line)


def stored_reply(line: Line) -> Reply:
    """A stored reply as it was when it came, less a thought; others may have noted it otherwise than we do."""
    kept = line.message.metadata
    try:
        usage = Usage(**kept["usage"]) if kept.get("usage") else None
    except TypeError:
        usage = None
    model = kept.get("model")
    return Reply(
        line.message.payload,
        str(kept.get("finish_reason", "")),
        usage,
        model if isinstance(model, str) else None,
        bool(kept.get(PARTIAL)),
    )


def _place(prompt: Message | None, newest: Sequence[Line]) -> int | None:
    """The place of the prompt's own line, or of the exchange in progress for None; None where there is none."""
    if prompt is not None and prompt.id is not None:
        return next((i for i, line in enumerate(newest) if line.id == prompt.id), None)
    start = next((i for i in reversed(range(len(newest))) if newest[i].message.role == "user"), 0)
    if prompt is None:
        return start if newest else None
    open_from = next((i + 1 for i in reversed(range(start, len(newest))) if _answers(newest[i])), start)
    places = (i for i in reversed(range(open_from, len(newest))) if newest[i].message.payload == prompt.payload)
    return next(places, None)


def _check_is_open(own: Sequence[Line]) -> None:
    """Refuse to ask for what is stored where a model would have nothing to answer, or only half of it."""
    said = [line for line in own if line.message.role not in INSTRUCTING]
    if said and _answers(said[-1]):
        raise MessageError("what is stored is answered already: give a prompt")
    payloads = [line.message.payload for line in own]
    for atom in atoms(payloads):
        answered = {payloads[place].get("tool_call_id") for place in atom}
        missing = sorted(call_ids(payloads[atom[0]]) - answered)
        if missing:
            raise MessageError(f"a call waits for its result: append the results of {', '.join(missing)} first")


def _answers(line: Line) -> bool:
    """Whether the line ends the exchange: it says something and calls nothing."""
    return line.message.role == "assistant" and not line.message.payload.get("tool_calls")

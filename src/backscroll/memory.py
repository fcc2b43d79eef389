"""Memory and Thread: where the order of the stages is written.

    append:   messages -> check -> store (durable) -> embed (derived)
    context:  prompt -> contextualize -> query -> search -> threshold -> neighbors -> relevance buffer
                     -> anchors, summary, window -> assemble within max_tokens -> Context
    reply:    context -> LLM -> append(prompt, reply)

They are handed a store, an embedder, a calibration and an LLM, and import no implementation of any.
"""

import json
import logging
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from types import TracebackType
from typing import Any, Literal, overload

from backscroll import facts
from backscroll.anchors import FIRST_LINES, INSTRUCTING, anchors, leading_system, times_replaced
from backscroll.assemble import Assembled, Frame, Parts, Shares, assemble, divide, fit_prompt
from backscroll.context import Context
from backscroll.contextualize import Contextualized, Rewriter, Said, combine, contextualize
from backscroll.dates import days_of
from backscroll.embed import Progress, embed_pending
from backscroll.errors import EmbedderError, LLMError, MessageError, NotFoundError
from backscroll.exchanges import sendable
from backscroll.explain import Considered, Labels, explain
from backscroll.messages import parse_messages, parse_time
from backscroll.prompt import Asked, ask_for, is_meanwhile, parse_prompt
from backscroll.protocols import LLM, Embedder, MemoryStore
from backscroll.recall.fuse import fuse
from backscroll.recall.gather import gather, spans_of
from backscroll.recall.neighbors import widen
from backscroll.recall.relevance import relevance
from backscroll.recall.search import search
from backscroll.recall.threshold import threshold
from backscroll.reply import (
    ABANDONED,
    Exchange,
    Replying,
    ReplyStream,
    Turn,
    as_stored,
    finished,
    fit_and_ask,
    left_behind,
    open_exchange,
    said,
    sent,
    stored_reply,
)
from backscroll.rolling import Rolling
from backscroll.settings import Settings, name_of, open_preset
from backscroll.sync import sync
from backscroll.terms import terms
from backscroll.tokens import message_tokens, open_counter
from backscroll.tools import GivenTools, parse_tools
from backscroll.tracing import stage
from backscroll.types import (
    FACTS_THREAD,
    Block,
    Days,
    Finding,
    Hit,
    Line,
    Message,
    Query,
    Ranking,
    Scope,
    Source,
    Span,
    Summary,
    ThreadInfo,
    ThreadKey,
    Vector,
    own_path,
)
from backscroll.vectors import embedded
from backscroll.window import WindowLimits, window

Given = Mapping[str, Any] | Message | Iterable[Mapping[str, Any] | Message]
Prompt = str | Mapping[str, Any] | Message | None
ScopeName = Literal["thread", "user", "all"]
Notes = tuple[str, ...]  # what was done otherwise, in words, for the report
Calibrate = Callable[[Embedder], Mapping[float, float]]  # percentile -> cosine between unrelated lines

DEFAULT_USER = "default"
_ALL = 2**62  # behind every position, above every number of tokens
_MAX_TERMS, _MAX_CHARACTERS = 64, 20_000  # of a query: a pasted page is searched for by its first words
_RECENT_LINES = 15  # what a prompt may lean on
_NO_COSINE = 2.0  # above every cosine: without a query's vector, nothing is near by meaning
_WORTH_READING = 1.25  # times the room there is: lines that may fit where longer, better ones do not; 2 finds no more
_TALKING = frozenset({"user", "assistant", "tool"})  # a system prompt is no memory
_log = logging.getLogger(__name__)


class Memory:
    """All users' threads in one store. Made by `backscroll.open`."""

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder,
        calibrate: Calibrate,
        settings: Settings | None = None,
        on_embedder_error: Literal["raise", "words"] = "raise",
        llm: LLM | None = None,
        rolling: Rolling | None = None,
    ) -> None:
        """Take the parts; see `backscroll.open` for what each argument means."""
        self.store = store
        self.embedder = embedder
        self.settings = settings or open_preset("backscroll")
        self.on_embedder_error = on_embedder_error
        self.llm = llm
        self.rolling = rolling or Rolling(store)
        self.rewriter: Rewriter | None = None  # who writes queries, where a contextualizer by a language model asks
        self._calibrate = calibrate
        self._calibrations: dict[str, Mapping[str, float]] = {}  # read once: an embedder's does not change

    def thread(self, name: str, user: str = DEFAULT_USER, persona: str | None = None) -> "Thread":
        """A thread of a user; it is made when the first message is stored.

        Args:
            persona: another user, whose facts contexts of this thread know too: the character that the user talks to.
        """
        _check_names(thread=name, user=user, persona=user if persona is None else persona)
        if name in (FACTS_THREAD, own_path(FACTS_THREAD)):
            raise MessageError(f"no thread is named {name!r}, where facts are kept: `remember` stores one")
        return Thread(self, ThreadKey(user, name), persona)

    def threads(self, user: str | None = None) -> list[ThreadInfo]:
        """All threads, or those of one user."""
        return [info for info in self.store.threads(user) if info.thread != FACTS_THREAD]

    def remember(
        self,
        text: str,
        user: str = DEFAULT_USER,
        *,
        pinned: bool = False,
        id: str | None = None,
        created_at: datetime | str | None = None,
    ) -> Line:
        """Store a fact about a user, or about a character: known in all threads, and no line of any.

        Args:
            text: a sentence that stands alone.
            pinned: in every context, as an anchor; otherwise it is recalled where it matters.
            id: the fact's name; another text under it takes the old one's place. None: its text decides, so that the
                same text is one fact.
            created_at: since when; the date is told with it. None takes now.

        Raises: MessageError; StoreError.
        """
        _check_names(user=user)
        line = facts.remember(self.store, user, facts.parse_fact(text, id, created_at), pinned)
        self.embed_stored(user)
        return line

    def facts(self, user: str = DEFAULT_USER) -> list[Line]:
        """A user's facts, in the order of remembering: `id`, `message.text`, `created_at`, `pinned`."""
        return facts.facts(self.store, user)

    def forget(self, id: str, user: str = DEFAULT_USER) -> Line:
        """Delete a fact by its id, with its vectors and bytes; returns it. Raises: NotFoundError."""
        return facts.forget(self.store, user, id)

    def delete(self, user: str, thread: str | None = None) -> int:
        """Delete a user, or one thread with its branches: lines, all that was derived from them, and their bytes.

        Returns: how many lines were deleted.
        Raises: NotFoundError.
        """
        return self.store.delete(user, thread)

    def embed(self, progress: Progress | None = None) -> int:
        """Embed all stored lines that have no vectors yet; returns how many. Raises: EmbedderError."""
        return embed_pending(self.store, self.embedder, None, progress)

    def embed_stored(self, user: str) -> None:
        """Embed what was just stored for a user; where the embedder fails, the next context tries again."""
        try:
            embed_pending(self.store, self.embedder, user)
        except EmbedderError as error:
            _log.warning("lines of user %r are stored and not embedded yet: %s", user, error)

    def reembed(self, progress: Progress | None = None) -> int:
        """Make all vectors anew by this memory's embedder; returns how many lines were embedded.

        May be interrupted: `embed` goes on where it stopped.
        """
        self.embedder.embed([""])  # an embedder that cannot run must not cost the vectors that there are
        self.store.drop_vectors()
        self.store.put_setting("embedder", self.embedder.name)
        return self.embed(progress)

    def summarize(self, user: str | None = None, thread: str | None = None, progress: Progress | None = None) -> int:
        """Let the language model write the summaries that are missing now, without waiting for a context to ask.

        Args:
            user, thread: whose, and of which thread; None for all.
            progress: told 1 after each summary.

        Returns: how many were made; those that another process is making are left to it.
        Raises: LLMError where there is no model, or it fails: what was made before is kept. NotFoundError.
        """
        if not self.rolling.has_model:
            raise LLMError("no language model writes summaries here: open the memory with one, as llm='openai:MODEL'")
        infos = [info for info in self.threads(user) if info.parent is None and thread in (None, info.thread)]
        if not infos and (user, thread) != (None, None):
            raise NotFoundError(f"there is no thread {thread!r} of user {user!r}")
        self.rolling.wait()
        return sum(self.rolling.make(ThreadKey(info.user, info.thread), progress=progress) for info in infos)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until nothing is done in the background: for programs that end, and tests.

        Returns: whether it came to that in time.
        """
        return self.rolling.wait(timeout_seconds)

    def check(self, repair: bool = False) -> list[Finding]:
        """Compare what is derived with the lines, and with `repair` rebuild it; vectors are made by `embed`."""
        return self.store.check(repair)

    def close(self) -> None:
        """Close the store and let go of the models; what is done in the background is stopped, and goes on later."""
        self.rolling.close()
        self.store.close()
        self.embedder.close()
        if self.rewriter is not None:
            self.rewriter.close()
        if self.llm is not None:
            self.llm.close()

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def chosen(self, preset: str | Settings | None) -> Settings:
        """The settings of a preset, the settings given, or this memory's own. Raises: NotFoundError."""
        if preset is None:
            return self.settings
        return preset if isinstance(preset, Settings) else open_preset(preset)

    def min_similarity(self, settings: Settings) -> float:
        """The cosine from which on a line may be related: the settings' own, or the embedder's calibrated one."""
        if not isinstance(settings.min_similarity, str):
            return settings.min_similarity
        name = f"calibration {self.embedder.name}"
        if name not in self._calibrations:
            known = self.store.setting(name)
            if known is None:
                measured = self._calibrate(self.embedder)
                known = json.dumps({f"p{percentile:g}": float(cosine) for percentile, cosine in measured.items()})
                self.store.put_setting(name, known)
            self._calibrations[name] = json.loads(known)
        return float(self._calibrations[name][settings.min_similarity])


@dataclass(frozen=True, slots=True)
class _Asking:
    """One call of `Thread.context`: what its steps share."""

    settings: Settings
    frame: Frame
    scope: Scope
    labels: Labels


class Thread:
    """One chat of a user. Made by `Memory.thread`."""

    def __init__(self, memory: Memory, key: ThreadKey, persona: str | None = None) -> None:
        """Take the memory it belongs to, its name, and whose facts it knows beside its user's."""
        self.memory = memory
        self.key = key
        self.persona = persona
        self._store = memory.store

    @stage("append")
    def append(self, messages: Given, embed: bool = True) -> list[Source]:
        """Store messages at the end of the thread.

        Args:
            messages: one OpenAI-style message or many; see `backscroll.messages.parse_message`.
            embed: embed them at once; otherwise the next context does. Where the embedder fails the lines are
                stored all the same, a warning is logged, and the next context tries again.

        Returns: where each message stands; for an id that the thread has already, where that one stands.
        Raises: MessageError or StoreError; then none of them is stored.
        """
        return [line.source for line in self._appended(parse_messages(messages), embed)]

    def sync(self, messages: Given, embed: bool = True) -> list[Source]:
        """Store what is new in a history that the caller resends whole.

        Messages are matched by content and place. Where the resent history differs from the stored one, or ends
        before it, the thread goes on as a branch from there; what is abandoned stays stored and is not recalled. A
        history that was seen before makes its branch the current one again. A system prompt that changed is taken
        over without a branch. A client that resends only its newest messages is understood by their overlap.

        Args:
            messages: all of the history, as in `append`.
            embed: as in `append`.

        Returns: where each newly stored message stands.
        """
        given = parse_messages(messages)
        if not given:
            raise MessageError("a resent history is not empty: delete the thread where nothing of it shall stay")
        lines = sync(self._store, self.key, given)
        if lines and embed:
            self.memory.embed_stored(self.key.user)
        return [line.source for line in lines]

    def context(
        self,
        prompt: Prompt = None,
        *,
        max_tokens: int,
        tools: Sequence[Mapping[str, Any]] = (),
        model: str | None = None,
        now: datetime | str | None = None,
        preset: str | Settings | None = None,
        scope: ScopeName = "user",
    ) -> Context:
        """Put together the best context for a prompt. Asking stores no line.

        Args:
            prompt: the new message, as text or as a message; None asks for the messages stored so far.
            max_tokens: the size of everything sent: messages, tools' schemas, the opening of the reply.
            tools: the schemas that will be sent along; their tokens count.
            model: whose tokens are counted; None counts as o200k_base.
            now: told in front of what is recalled, so that "last week" can be understood; None tells no date.
            preset: name of a preset, or settings; None takes the memory's.
            scope: where to recall from: this ``thread``, the ``user``'s threads, or ``all`` users.

        Returns: the context, at most max_tokens tokens.
        Raises: BudgetError when anchors, tools and prompt do not fit; EmbedderError; MessageError; StoreError.
        """
        asking = self._asking(max_tokens, tools, model, now, preset, scope)
        return self._context(prompt, asking)

    @overload
    def reply(
        self,
        prompt: Prompt = None,
        *,
        max_tokens: int,
        tools: GivenTools = None,
        stream: Literal[False] = False,
        keep_prompt: bool = False,
        now: datetime | str | None = None,
        scope: ScopeName = "user",
    ) -> Turn: ...

    @overload
    def reply(
        self,
        prompt: Prompt = None,
        *,
        max_tokens: int,
        tools: GivenTools = None,
        stream: Literal[True],
        keep_prompt: bool = False,
        now: datetime | str | None = None,
        scope: ScopeName = "user",
    ) -> ReplyStream: ...

    def reply(
        self,
        prompt: Prompt = None,
        *,
        max_tokens: int,
        tools: GivenTools = None,
        stream: bool = False,
        keep_prompt: bool = False,
        now: datetime | str | None = None,
        scope: ScopeName = "user",
    ) -> Turn | ReplyStream:
        """Ask the language model, and store the prompt and its reply together.

        A reply that fails, is empty or cut off is not stored. Asking again with the same prompt goes on from what is
        stored and stores nothing twice; with the same id it gives the reply that is stored, if there is one.

        Args:
            prompt, max_tokens, now, scope: as in `context`. Tokens are counted as the LLM's model counts them.
            tools: functions by name (or `Tools`), which are called here and their results stored with the calls,
                the context fitted anew after each round; or a list of schemas: then the reply may be calls, which are
                stored with the prompt; append their results and go on with `reply(None)`.
            stream: give the reply in pieces. Whoever leaves before its end has what was received stored, as partial.
            keep_prompt: store the prompt also where the reply fails.

        Returns: the turn, or a stream of its text that has the turn when it has ended.
        Raises: LLMError, or one under it; what `context` raises; whatever a function given as LLM raises.
        """
        if self.memory.llm is None:
            raise LLMError("this memory has no language model: give one, as backscroll.open(…, llm='openai:MODEL')")
        llm, parsed, given = self.memory.llm, parse_tools(tools), parse_prompt(prompt)
        sent: list[Context] = []

        def fit(exchange: Exchange, budget: int) -> Context:
            asking = self._asking(budget, parsed.told(), llm.model, now, None, scope)
            sent.append(self._context(exchange.new, asking, exchange.stored))
            return sent[-1]

        exchange = open_exchange(given, self._newest(given, max_tokens))
        pieces = self._turn(exchange, Replying(llm, parsed, fit, stream, keep_prompt), max_tokens)
        return ReplyStream(pieces, sent) if stream else finished(pieces)

    def recall(self, query: str, k: int = 10, scope: ScopeName = "user") -> list[Hit]:
        """The k lines that match a query best, without assembling a context.

        Args:
            query: a text that stands alone.
            k: how many hits at most.
            scope: this ``thread``, the ``user``'s threads, or ``all`` users.

        Returns: hits, best first; lines below the minimum similarity that share no word with the query are not among
            them.
        Raises: EmbedderError when lines or the query cannot be embedded.
        """
        if not isinstance(query, str) or not query.strip():
            raise MessageError("a query to recall by is text that is not empty")
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise MessageError(f"k is a whole number above 0, not {k!r}")
        settings = self.memory.settings
        seen = self._scope(scope, settings)
        asked, _ = self._query(contextualize(query, (), "none"), seen, days_of(query))
        found = search(self._store, seen, asked, _fusion(asked, settings))
        near = self._related(found, asked, self._least(asked, settings), settings, k)
        lines = {line.row: line for line in self._store.fetch([int(row) for row in found.candidates.row[near.order]])}
        columns = found.candidates
        return [
            Hit(lines[row], float(columns.dense[i]), float(columns.lexical[i]), float(found.score[i]))
            for i in near.order
            if (row := int(columns.row[i])) in lines
        ]

    def lines(self, first: int = 0, last: int | None = None) -> list[Line]:
        """The stored lines of the current path, in order, from position `first` to `last`, both included."""
        return self._store.read(self.key, first, _ALL if last is None else last)

    def summaries(self) -> list[Summary]:
        """All summaries that are kept of the current path: by first position, then longest first."""
        return self.memory.rolling.summaries(self.key)

    def pin(self, position: int) -> Line:
        """Keep a line in every context from now on. Raises: NotFoundError; MessageError for a call or its result."""
        found = self.lines(position, position)
        if found and (found[0].message.payload.get("tool_calls") or found[0].message.role == "tool"):
            raise MessageError("a call or its result cannot be pinned: it is valid only with the lines around it")
        return self._store.pin(self.key, position, True)

    def unpin(self, position: int) -> Line:
        """Let go of a pinned line. Raises: NotFoundError."""
        return self._store.pin(self.key, position, False)

    def delete(self, position: int | Iterable[int] | None = None) -> int:
        """Delete a line, several at once, or without a position the whole thread, with their bytes.

        Returns: how many lines.
        Raises: NotFoundError, where one of them is not there: then none is deleted. StoreBusyError where they are
            deleted and another process still keeps their bytes.
        """
        return self._store.delete(self.key.user, self.key.thread, position)

    def _appended(self, messages: Sequence[Message], embed: bool = True) -> list[Line]:
        """The lines of messages, stored; embedded too where the embedder can."""
        lines = self._store.append(self.key, messages)
        if embed:
            self.memory.embed_stored(self.key.user)
        return lines

    def _turn(self, exchange: Exchange, replying: Replying, max_tokens: int) -> Generator[str, None, Turn]:
        """The way of a reply: context -> LLM -> append(prompt, reply), and again after each round of calls.

        A round is stored whole, the call with its results: whatever dies, none is sent without the other.
        """
        if exchange.answer is not None:
            yield exchange.answer.message.text
            return Turn(stored_reply(exchange.answer), None, exchange.stored)
        received: list[str] = []
        rounds = 0
        try:
            while True:
                began = time.monotonic()
                context, reply = yield from fit_and_ask(exchange, replying, max_tokens, received)
                results = parse_messages(replying.tools.answer(reply.message, rounds))
                lines = self._appended(exchange.lines([said(reply, sent(context, began)), *results]))
                exchange, max_tokens = exchange.followed(lines), context.report.max_tokens
                received.clear()
                rounds += 1
                if not results:
                    return Turn(as_stored(reply, lines[-1]), context, exchange.stored)
        except BaseException as error:
            left = left_behind(received, replying.llm.model) if isinstance(error, ABANDONED) else []
            if left or replying.keep_prompt:
                self._appended(exchange.lines(left), embed=False)
            raise

    def _newest(self, prompt: Message | None, max_tokens: int) -> list[Line]:
        """The newest lines, down to the exchange in progress; for a prompt with an id, from its own line on."""
        if prompt is not None and prompt.id is not None:
            asked = self._store.find(self.key, prompt.id)
            return self.lines(asked.position) if asked else []
        newest = self._store.tail(self.key, max_tokens)
        goes_on = bool(newest) and newest[-1].message.role == "tool"
        return self._down_to_question(newest) if goes_on else newest

    @stage("context")
    def _context(self, prompt: Prompt, asking: _Asking, own: Sequence[Source] = ()) -> Context:
        """The way of a context; `own` are the stored lines of the exchange that it goes on with."""
        with self._store.one_state():
            asked = self._asked(prompt, asking, own)
            held = _others(self._anchors(asking.settings), asked.lines)
            talk = self._without_system_prompt(asked.before, held)
        last = self._last(held, asked, asking.frame)
        shares = divide(held, last.messages, asking.frame)
        shown = self._window(talk, last, shares, asking)
        told, notes = self._summary(shown, last, shares, asking.settings)
        parts = Parts(anchors=_others(held, shown), summary=told, window=shown, prompt=last.messages)
        blocks, held_now, remarks = self._recalled(last, parts, shares, asking)
        made = assemble(replace(parts, recalled=blocks), shares, asking.frame)
        self._remember(last, made, held_now, asking.settings)
        return explain(Considered(made, last, blocks, (*notes, *remarks)), asking.frame, asking.labels)

    def _asking(
        self,
        max_tokens: int,
        tools: Sequence[Mapping[str, Any]],
        model: str | None,
        now: datetime | str | None,
        preset: str | Settings | None,
        scope: ScopeName,
    ) -> _Asking:
        """Check what was given, and choose the settings, the counter and the scope."""
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise MessageError(f"max_tokens is a whole number above 0, not {max_tokens!r}")
        settings = self.memory.chosen(preset)
        today = _day(now)
        seen = self._scope(scope, settings)
        frame = Frame(
            max_tokens=max_tokens,
            counter=open_counter(model),
            settings=settings,
            tools=tuple(tools),
            today=today.date().isoformat() if today else "",
            asking_thread=self.key,
            facts=facts.pinned(self._store, seen.also),
        )
        return _Asking(settings, frame, seen, Labels(name_of(settings), self.memory.embedder.name, scope))

    @stage("read")
    def _asked(self, prompt: Prompt, asking: _Asking, own: Sequence[Source]) -> Asked:
        """The prompt and the newest lines, as many as could be in the window."""
        given = parse_prompt(prompt)
        newest = self._store.tail(self.key, _ALL if asking.settings.skip_oversized else asking.frame.max_tokens)
        goes_on = given is None or given.role == "tool"
        return _without_system(ask_for(given, self._down_to_question(newest, own) if goes_on else newest, own))

    def _down_to_question(self, newest: list[Line], own: Sequence[Source] = ()) -> list[Line]:
        """The newest lines, or all where none of them is the question: what is in progress began before them."""
        has_question = any(line.message.role == "user" and not is_meanwhile(line, own) for line in newest)
        return newest if has_question else self._store.tail(self.key, _ALL)

    def _anchors(self, settings: Settings) -> list[Line]:
        first = self._store.read(self.key, 0, FIRST_LINES + settings.sink_messages)
        return anchors(first, self._store.pinned(self.key), settings.sink_messages)

    def _last(self, held: Sequence[Line], asked: Asked, frame: Frame) -> Asked:
        """What comes last, where an exchange in progress is too long without its oldest calls."""
        kept = fit_prompt(held, asked.messages, frame)
        messages = tuple(asked.messages[place] for place in kept)
        return replace(asked, messages=messages, lines=tuple(asked.lines[place] for place in kept))

    @stage("window")
    def _window(self, talk: Sequence[Line], asked: Asked, shares: Shares, asking: _Asking) -> list[Line]:
        settings = asking.settings
        recent = [talk[place] for place in sendable([line.message.payload for line in talk])]
        tokens = [message_tokens(line.message.payload, asking.frame.counter) for line in recent]
        limits = WindowLimits(
            max_tokens=shares.window,
            min_tokens=shares.window_min,
            space_tokens=shares.space,
            step_tokens=shares.window_step,
            max_messages=settings.window_messages,
            unit=settings.window_unit,
            skip_oversized=settings.skip_oversized,
            from_first=_reaches_first(asked.before, asking.frame.max_tokens),
        )
        return [recent[place] for place in window(recent, tokens, limits)]

    def _without_system_prompt(self, lines: Sequence[Line], held: Sequence[Line]) -> list[Line]:
        """The lines but those that are, or were once, the thread's system prompt."""
        if not any(line.message.role in INSTRUCTING for line in lines):
            return list(lines)
        first = self._store.read(self.key, 0, FIRST_LINES)
        system = {line.row for line in first[: leading_system([line.message for line in first])]}
        system |= {line.row for line in held if line.message.role in INSTRUCTING}
        return [line for line in lines if line.row not in system and not times_replaced(line.message)]

    @stage("summarize")
    def _summary(
        self, shown: Sequence[Line], asked: Asked, shares: Shares, settings: Settings
    ) -> tuple[list[Summary], Notes]:
        """The summaries of what lies before the window, and what is to be noted of them."""
        newest = asked.before[-1] if asked.before else None
        if settings.summary_share == 0 or newest is None:
            return [], ()
        if newest.offset + newest.tokens < settings.summary_trigger_tokens:
            return [], ()
        before = shown[0].position if shown else asked.at
        leaving = shown[0].offset + shares.window_step if shown else 0
        ahead = next((line.position for line in shown if line.offset >= leaving), asked.at)
        return self.memory.rolling.told(self.key, before, ahead, settings.summary_trigger_tokens)

    def _query(self, made: Contextualized, scope: Scope, days: Sequence[Days]) -> tuple[Query, list[str]]:
        """The vector, the terms and the days of a query; pending lines are embedded first, to be found by it."""
        notes = []
        vector = None
        try:
            for user in dict.fromkeys((scope.user, *(key.user for key in scope.also))):
                embed_pending(self._store, self.memory.embedder, user)
            vector = _embedded(self.memory.embedder, made)
        except EmbedderError as error:
            if self.memory.on_embedder_error == "raise":
                raise
            notes.append(f"recalled by words alone, the embedder failed: {error}")
        if scope.user is None:
            notes.append("all users are searched by meaning alone: the text index is scoped to a user")
        found = dict.fromkeys(term for part in made.parts for term in terms(part.text[:_MAX_CHARACTERS]))
        return Query(made.text, vector, tuple(found)[:_MAX_TERMS], tuple(days)), notes

    @stage("recall")
    def _recalled(
        self, asked: Asked, parts: Parts, shares: Shares, asking: _Asking
    ) -> tuple[list[Block], list[Span], Notes]:
        """Old lines that matter for what is asked, best first.

        Returns: the lines; what the relevance buffer held of the position asked at; notes on what was done otherwise.
        """
        settings = asking.settings
        if settings.recall_lines == 0:
            return [], self._held(asked, settings)[1], ()
        if not asked.text.strip():
            return [], self._held(asked, settings)[1], ("nothing was recalled: the prompt has no words to search for",)
        now = date.fromisoformat(asking.frame.today) if asking.frame.today else None
        recent = [Said(line.message.role, line.message.text) for line in asked.before[-_RECENT_LINES:]]
        made = contextualize(asked.text, recent, settings.contextualizer, self.memory.rewriter)
        days = days_of(asked.text, now)
        asking_for = [self._query(one, asking.scope, days) for one in made.queries()]
        query, remarks = asking_for[0]
        least = self._least(query, settings)
        lines = (*parts.anchors, *asking.frame.facts, *parts.window, *filter(None, asked.lines))
        shown = frozenset(line.row for line in lines)
        most = settings.buffer_blocks
        with self._store.one_state():
            found = fuse(
                [search(self._store, asking.scope, one, _fusion(one, settings), shown) for one, _ in asking_for]
            )
            near = self._related(found, query, least, settings, settings.recall_lines)
            spans = widen(spans_of(near, asked.at, _WORTH_READING * shares.space), *settings.neighbors)
            buffered, held_now = self._held(asked, settings)
            kept = relevance([span for span in buffered if _may_see(asking.scope, span)], spans, most)
            blocks = gather(self._store, kept, near, asked.at, settings.recall_unit == "exchange")
        notes = (*filter(None, (made.note,)), *remarks)
        beside = [_beside(block, asked.lines) for block in blocks] if any(asked.lines) else blocks
        return beside, held_now, notes

    def _held(self, asked: Asked, settings: Settings) -> tuple[list[Span], list[Span]]:
        """What the relevance buffer holds of earlier turns, and of the position asked at."""
        most = settings.buffer_blocks
        held = self._store.blocks(self.key, asked.at + 1) if most else []
        earlier = [span for span in held if span.asked_at < asked.at]
        return earlier[-most:], held[len(earlier) :]

    def _least(self, query: Query, settings: Settings) -> float:
        """The cosine from which on a line is near enough by meaning.

        A query without a word that says anything ("Hi!", "Thanks") is near to a hundred other greetings: there only
        what hardly any two unrelated lines have in common stays.
        """
        if query.vector is None:
            return _NO_COSINE
        says_nothing = _fusion(query, settings) == "hybrid" and not query.terms
        return self.memory.min_similarity(replace(settings, min_similarity="p99.9") if says_nothing else settings)

    def _related(
        self, found: Ranking, query: Query, least: float, settings: Settings, max_lines: int | None
    ) -> Ranking:
        """What is near enough by meaning, or shares a word where words count."""
        keep_words = _fusion(query, settings) == "hybrid" and bool(query.terms)
        return threshold(found, least, max_lines, keep_words)

    @stage("remember")
    def _remember(self, asked: Asked, made: Assembled, held: Sequence[Span], settings: Settings) -> None:
        """Keep what was recalled for the next turns, under the position asked at.

        As many older blocks stay beside them as are ever read, so that asking again finds the same ones.
        """
        if not settings.buffer_blocks:
            return
        fresh = [block.span for block in made.parts.recalled if not block.is_buffered]
        best = fresh[: settings.buffer_blocks]
        if best != held:
            self._store.put_blocks(self.key, asked.at, best, 2 * settings.buffer_blocks)

    def _scope(self, scope: ScopeName, settings: Settings) -> Scope:
        if scope not in ("thread", "user", "all"):
            raise NotFoundError(f"no scope {scope!r}: there are thread, user, all")
        roles = _TALKING if settings.recall_roles == "both" else frozenset({settings.recall_roles})
        user = None if scope == "all" else self.key.user
        known = facts.known_to(self._store, [self.key.user, self.persona or self.key.user])
        return Scope(user, self.key.thread if scope == "thread" else None, roles, known)


@stage("embed query")
def _embedded(embedder: Embedder, made: Contextualized) -> Vector:
    return combine(embedded(embedder, [part.text for part in made.parts]), made)


def _check_names(**given: object) -> None:
    for what, name in given.items():
        if not isinstance(name, str) or not name.strip():
            raise MessageError(f"the name of a {what} is text that is not empty, not {name!r}")


def _day(now: datetime | str | None) -> datetime | None:
    try:
        return parse_time(now)
    except MessageError as error:
        raise MessageError(f"now is a datetime or ISO 8601 text, not {now!r}") from error


def _without_system(asked: Asked) -> Asked:
    """What comes last without a system prompt that was sent anew behind it: that one is an anchor."""
    pairs = zip(asked.messages, asked.lines, strict=True)
    kept = [(message, line) for message, line in pairs if line is None or not times_replaced(message)]
    return replace(asked, messages=tuple(pair[0] for pair in kept), lines=tuple(pair[1] for pair in kept))


def _others(held: Sequence[Line], shown: Sequence[Line | None]) -> list[Line]:
    """Lines that the window or the prompt does not show in their own place."""
    rows = {line.row for line in shown if line}
    return [line for line in held if line.row not in rows]


def _beside(block: Block, asked: Sequence[Line | None]) -> Block:
    """The block without lines that the prompt itself shows."""
    return block._replace(lines=tuple(_others(block.lines, asked)))


def _reaches_first(newest: Sequence[Line], max_tokens: int) -> bool:
    """Whether the newest lines, read up to max_tokens, are all that there are."""
    return bool(newest) and (newest[0].position == 0 or sum(line.tokens for line in newest) < max_tokens)


def _fusion(query: Query, settings: Settings) -> Literal["hybrid", "dense"]:
    """The settings' own; a query without a vector can only go by words."""
    return settings.fusion if query.vector is not None else "hybrid"


def _may_see(scope: Scope, span: Span) -> bool:
    """Whether a buffered span lies in what is searched now."""
    if span.family == FACTS_THREAD:
        return ThreadKey(span.user, span.family) in scope.also
    return scope.user in (None, span.user) and scope.thread in (None, span.family)

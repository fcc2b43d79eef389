"""Chats that come in by a webhook: what a channel is, and how its messages are answered.

    webhook -> channel.read -> ledger -> thread.reply -> channel.response, or later channel.send

A new channel is one file: a class with the four members of `Channel`, and a line in `OPENERS`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Protocol
from weakref import WeakValueDictionary

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backscroll.errors import BackscrollError, BudgetError, EmbedderError, LLMError, MessageError, NotFoundError
from backscroll.memory import Memory
from backscroll.messages import without_thought
from backscroll.retry import DEFAULT_RETRY, Retry
from backscroll.server.ledger import Incoming, Ledger
from backscroll.server.splitting import split

OPENERS = {  # what opens the channel, as module:function
    "sms": "backscroll.server.sms:open_sms",
}
APOLOGY = "Sorry, I cannot answer right now. Your message is kept; please try again in a while."
_MAX_WAITING = 64  # threads that wait for a language model, or for the channel's API
_log = logging.getLogger(__name__)


class SendError(Exception):
    """The channel's API did not take a message.

    Attributes:
        is_final: whether it will not take it later either.
    """

    def __init__(self, problem: str, is_final: bool = False) -> None:
        self.is_final = is_final
        super().__init__(problem)


class Channel(Protocol):
    """A way by which people write: SMS, and whatever else calls a webhook.

    Attributes:
        name: also its path: ``/sms``.
        max_units: the longest message that it carries, in UTF-16 code units.
        reply_seconds: how long its webhook may be kept waiting.
    """

    name: str
    max_units: int
    reply_seconds: float

    async def read(self, request: Request) -> Incoming:
        """The message of a webhook's request, once it is sure who sent it. Raises: RefusedError, with 403."""

    def response(self, texts: Sequence[str]) -> Response:
        """The webhook's response that says these texts; without any, one that says nothing."""

    def send(self, incoming: Incoming, text: str) -> None:
        """Say a text afterwards. Blocks. Raises: SendError."""


def open_channel(name: str) -> Channel:
    """Open a channel by its name. Raises: NotFoundError; MessageError, which says what is missing."""
    if name not in OPENERS:
        raise NotFoundError(f"no channel is called {name!r}: there are {', '.join(OPENERS)}")
    module, _, function = OPENERS[name].partition(":")
    try:
        channel: Channel = getattr(import_module(module), function)()
    except ImportError as error:
        raise MessageError(f"{name} needs a package: pip install 'backscroll[{name}]' ({error})") from error
    return channel


def webhooks(names: Sequence[str]) -> list[Route]:
    """Where the channels are called."""
    return [Route(f"/{name}", _receive, methods=["POST"], name=name) for name in names]


@asynccontextmanager
async def answering(
    memory: Memory, names: Sequence[str], max_tokens: int, shutdown_seconds: float
) -> AsyncIterator[dict[str, "Switchboard"]]:
    """The switchboards of channels, by name, while the server runs."""
    boards = {name: Switchboard(memory, open_channel(name), max_tokens) for name in names}
    for board in boards.values():
        await board.resume()
    yield boards
    for board in boards.values():
        await board.close(shutdown_seconds)


async def _receive(request: Request) -> Response:
    board: Switchboard = request.app.state.switchboards[request.scope["path"].strip("/")]
    return await board.receive(request)


class Switchboard:
    """Answers the messages of one channel by the memory's language model."""

    def __init__(self, memory: Memory, channel: Channel, max_tokens: int, retry: Retry = DEFAULT_RETRY) -> None:
        """Take the memory, the channel, and the size of a context.

        Raises: LLMError where the memory has no language model to answer with.
        """
        if memory.llm is None:
            raise LLMError(f"{channel.name} needs a language model to answer with: start with --llm openai:MODEL")
        self.channel = channel
        self._memory = memory
        self._max_tokens = max_tokens
        self._retry = retry
        self._ledger = Ledger(memory.store, channel.name)
        self._waiting = CapacityLimiter(_MAX_WAITING)
        self._answers: dict[str, asyncio.Task[str]] = {}  # by message id: a retry waits for the same answer
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # one answer a user at a time
        self._following: set[asyncio.Task[None]] = set()

    async def receive(self, request: Request) -> Response:
        """Answer a webhook: within the channel's time, or with nothing, and then the answer is sent afterwards."""
        incoming = await self.channel.read(request)
        if await run_sync(self._is_granted, incoming):
            return self.channel.response([])
        if await run_sync(self._ledger.wants_nothing, incoming.user):
            return self.channel.response([])
        await run_sync(self._ledger.receive, incoming)
        answer = self._answer(incoming)
        try:
            text = await asyncio.wait_for(asyncio.shield(answer), self.channel.reply_seconds)
        except TimeoutError:
            if await run_sync(self._ledger.become, incoming.id, "later"):
                self._follow(self._send_later(incoming))
            return self.channel.response([])
        is_ours = await run_sync(self._ledger.become, incoming.id, "response")
        if not is_ours or await run_sync(self._ledger.wants_nothing, incoming.user):  # who said stop meanwhile
            return self.channel.response([])
        return self.channel.response(split(text, self.channel.max_units))

    async def resume(self) -> None:
        """Answer what was received and not answered when the process ended. Returns at once; it goes on behind."""
        lost = await run_sync(self._ledger.give_up_lost)
        if lost:
            _log.warning("%d answers by %s may have been sent or not: the process died then", lost, self.channel.name)
        for incoming in await run_sync(self._ledger.unanswered):
            await run_sync(self._ledger.become, incoming.id, "later")
            self._follow(self._send_later(incoming))

    async def close(self, seconds: float) -> None:
        """Wait for what is being answered and sent; what is not done by then, the next start goes on with."""
        if self._following or self._answers:
            await asyncio.wait([*self._following, *self._answers.values()], timeout=seconds)

    def _is_granted(self, incoming: Incoming) -> bool:
        """Keep a wish, if it is one; a start of somebody who never stopped is a message like others."""
        if incoming.wish == "help":
            return True
        if incoming.wish is None or (incoming.wish == "start" and not self._ledger.wants_nothing(incoming.user)):
            return False
        self._ledger.keep_wish(incoming.user, incoming.wish)
        return True

    def _answer(self, incoming: Incoming) -> asyncio.Task[str]:
        """The answer that is being made, or made now."""
        task = self._answers.get(incoming.id)
        if task is None:
            task = asyncio.create_task(self._answered_in_turn(incoming))
            self._answers[incoming.id] = task
            task.add_done_callback(lambda _: self._answers.pop(incoming.id, None))
        return task

    async def _answered_in_turn(self, incoming: Incoming) -> str:
        turn = self._turns.setdefault(incoming.user, asyncio.Lock())
        async with turn:
            return await run_sync(self._answered, incoming, limiter=self._waiting)

    def _answered(self, incoming: Incoming) -> str:
        """The model's answer, or the stored one; where it fails an apology, and the message is kept."""
        thread = self._memory.thread(incoming.thread, user=incoming.user)
        prompt = {"role": "user", "content": incoming.text, "id": incoming.id}
        try:
            turn = thread.reply(prompt, max_tokens=self._max_tokens, keep_prompt=True, now=datetime.now(UTC))
            return without_thought(turn.text)
        except (LLMError, EmbedderError, BudgetError) as error:
            _log.warning("no answer by %s: %s", self.channel.name, error)
            return APOLOGY

    async def _send_later(self, incoming: Incoming) -> None:
        try:
            text = await self._answer(incoming)
            await run_sync(self._sent, incoming, text, limiter=self._waiting)
        except BackscrollError as error:
            _log.warning("an answer by %s waits for the next start: %s", self.channel.name, error)

    def _sent(self, incoming: Incoming, text: str) -> None:
        """Send an answer once, unless the user wants nothing by now."""
        if not self._ledger.become(incoming.id, "sending"):
            return
        parts = [] if self._ledger.wants_nothing(incoming.user) else split(text, self.channel.max_units)
        for number, part in enumerate(parts):
            if not self._is_done(incoming, part):
                # What has been sent in part is not begun anew: nobody gets a message twice.
                self._ledger.become(incoming.id, "later" if number == 0 else "sent")
                return
        self._ledger.become(incoming.id, "sent")

    def _is_done(self, incoming: Incoming, part: str) -> bool:
        """Send a part, again where it may help; False where it may still help later."""
        for attempt in range(1, self._retry.attempts + 1):
            try:
                self.channel.send(incoming, part)
                return True
            except SendError as error:
                _log.warning("%s did not take an answer: %s", self.channel.name, error)
                if error.is_final:
                    return True
                if attempt < self._retry.attempts:
                    self._retry.wait(attempt)
        return False

    def _follow(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._following.add(task)
        task.add_done_callback(self._following.discard)

"""How much of what is sent a provider's prefix cache would serve, over a long chat.

All threads of a conversation are replayed as one: before each user's message is appended, a context is made for it. A
prefix cache serves the front of a request that the request before it began with too; the rest is read anew.
No language model is asked: the replies are those of the file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from backscroll import api
from backscroll.context import Context
from backscroll.errors import BudgetError
from backscroll.evaluation.datasets import Conversation
from backscroll.evaluation.vector_cache import CachedEmbedder
from backscroll.fence import RECALLED
from backscroll.memory import Thread
from backscroll.messages import text_of
from backscroll.protocols import TokenCounter
from backscroll.tokens import DEFAULT_VOCABULARY, message_tokens, open_counter
from backscroll.types import Message

Advance = Callable[[int], None]
Sent = Sequence[Mapping[str, Any]]

_FENCE = f"<{RECALLED}>\n"


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a chat, in tokens.

    Attributes:
        tokens: of all messages; front: of those in front of what was recalled, or of the prompt where nothing was.
        served: the front of all that the request before it began with too; front_served: of the front alone.
    """

    tokens: int
    served: int
    front: int
    front_served: int


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """What a prefix cache would serve of one preset's requests within one budget.

    Attributes:
        requests: how many there were, the first of each chat among them, which nothing can be served of.
        refused: prompts that do not fit in the budget alone.
        tokens, front: mean tokens of a request, and of its front.
        served, front_served: share of all tokens that a cache would serve, and of those of the fronts.
    """

    preset: str
    max_tokens: int
    requests: int
    refused: int
    tokens: float
    front: float
    served: float
    front_served: float


def measure_cache(
    conversations: Iterable[Conversation],
    presets: Sequence[str],
    budgets: Sequence[int],
    embedder: CachedEmbedder,
    advance: Advance,
) -> list[CacheFigures]:
    """Replay conversations by each preset within each budget; `advance` is told of each message of a user.

    Raises: EmbedderError, MessageError.
    """
    chats = [one_thread(conversation) for conversation in conversations]
    found = []
    for preset in presets:
        for max_tokens in budgets:
            made = [replay(chat, preset, max_tokens, embedder, advance) for chat in chats]
            found.append(_figures(preset, max_tokens, [one for requests in made for one in requests]))
    return found


def one_thread(conversation: Conversation) -> list[Message]:
    """All messages of a conversation as one long chat, which begins with a user's."""
    messages = [one for thread in conversation.threads.values() for one in thread if one.text.strip()]
    first = next((place for place, one in enumerate(messages) if one.role == "user"), len(messages))
    return messages[first:]


def questions_in(conversations: Iterable[Conversation]) -> int:
    """How many requests a replay makes, per preset and budget."""
    return sum(one.role == "user" for conversation in conversations for one in one_thread(conversation))


def replay(
    chat: Sequence[Message], preset: str, max_tokens: int, embedder: CachedEmbedder, advance: Advance
) -> list[Request | None]:
    """The requests of a chat, one before each user's message; None where it does not fit in the budget."""
    counter = open_counter(DEFAULT_VOCABULARY)
    made: list[Request | None] = []
    before: Sent = ()
    with api.open(":memory:", embedder=embedder, preset=preset) as memory:
        thread = memory.thread("chat")
        for message in chat:
            if message.role == "user":
                context = _asked(thread, message, max_tokens)
                made.append(None if context is None else request(before, context, counter))
                before = context.messages if context else before
                advance(1)
            thread.append(message, embed=False)
    return made


def request(before: Sent, context: Context, counter: TokenCounter) -> Request:
    """What of a context the request before it began with too."""
    costs = [message_tokens(message, counter) for message in context.messages]
    served = list(_served(before, context.messages, costs, counter))
    front = _front(context)
    return Request(sum(costs), sum(served), sum(costs[:front]), sum(served[:front]))


def _asked(thread: Thread, message: Message, max_tokens: int) -> Context | None:
    try:
        return thread.context(message._replace(id=None), max_tokens=max_tokens)
    except BudgetError:
        return None


def _served(before: Sent, after: Sent, costs: Sequence[int], counter: TokenCounter) -> Iterator[int]:
    """Tokens of each message up to the first difference; of the message that differs, those of its common beginning."""
    for old, new, cost in zip(before, after, costs, strict=False):
        if old != new:
            yield _common_tokens(old, new, counter)
            return
        yield cost


def _common_tokens(old: Mapping[str, Any], new: Mapping[str, Any], counter: TokenCounter) -> int:
    """Tokens of the text with which two messages begin; the last one may be part of a longer one."""
    if old["role"] != new["role"] or old.get("name") != new.get("name"):
        return 0
    before, after = text_of(old.get("content")), text_of(new.get("content"))
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    return max(0, counter.count(after[:common]) - 1)


def _front(context: Context) -> int:
    """How many messages stand in front of the first with anything recalled, and of the prompt's."""
    fenced = (i for i, message in enumerate(context.messages) if _FENCE in text_of(message.get("content")))
    recalled = {entry.source for entry in context.report.entries if entry.part == "recalled" and entry.included}
    is_said = len(context.messages) == len(context.sources) + 1  # each line is a message: the places are the same
    said = (i for i, source in enumerate(context.sources) if is_said and source in recalled)
    return int(min([*fenced, *said, len(context.messages) - 1]))


def _figures(preset: str, max_tokens: int, made: Sequence[Request | None]) -> CacheFigures:
    sent = [one for one in made if one is not None]
    tokens, front = sum(one.tokens for one in sent), sum(one.front for one in sent)
    return CacheFigures(
        preset=preset,
        max_tokens=max_tokens,
        requests=len(sent),
        refused=len(made) - len(sent),
        tokens=tokens / max(1, len(sent)),
        front=front / max(1, len(sent)),
        served=sum(one.served for one in sent) / max(1, tokens),
        front_served=sum(one.front_served for one in sent) / max(1, front),
    )

"""Which thread a resent history is of, and what of it is stored: by the name that it comes with, else by what it says.

Knows nothing about HTTP.
"""

from collections.abc import Sequence
from itertools import dropwhile, takewhile
from typing import Literal, TypeVar

from backscroll.fingerprint import fingerprint, says_the_same
from backscroll.memory import Thread
from backscroll.protocols import MemoryStore
from backscroll.types import Line, Mark, Message, ThreadKey

History = Literal["whole", "new", ""]
Told = TypeVar("Told", Mark, Message)
_MAX_LINES = 32  # that say the same as an answer: a greeting stands in many chats
_MAX_ANSWERS = 8  # from the end: the newest may have been edited, or cut when the stream was stopped
_MAX_COMPARED = 16  # messages, from the end: enough to tell chats apart; syncing compares all of them
_SURE = 2  # messages in a row that are the same
_INSTRUCTING = frozenset({"system", "developer"})
_ALL = 2**62


def find_thread(store: MemoryStore, user: str, messages: Sequence[Message]) -> str | None:
    """The thread of a user that a history goes on in, or None for a chat that begins.

    An answer with the question in front of it tells the place; one look-up finds the lines that say the same. A chat
    that has no answer yet is a new one, unless it waits for its first answer: then the client asks again.

    Args:
        messages: the whole history as the client resends it, or its end.
    """
    talk = [message for message in messages if message.role not in _INSTRUCTING]
    answers = [place for place, message in enumerate(talk) if message.role == "assistant"]
    for place in answers[::-1][:_MAX_ANSWERS]:
        found = _best(store, user, talk[: place + 1])
        if found is not None:
            return found
    return None if answers or not talk else _waiting(store, user, talk)


def store_history(thread: Thread, messages: Sequence[Message], history: History = "") -> Line:
    """Store what is new of what a client sent.

    Args:
        thread: the one that was named or found.
        messages: what was sent.
        history: ``whole`` for a resent history, ``new`` for new messages alone. Where the client does not say, messages
            that have nothing in common with the thread and no answer among them are new ones.

    Returns: the thread's newest line, before anybody else's comes behind it.
    """
    store = thread.memory.store
    given = list(messages)
    with store.exclusive():
        if history != "whole":
            leading = sum(1 for _ in takewhile(lambda message: message.role in _INSTRUCTING, given))
            system, talk = given[:leading], given[leading:]
            if history == "new" or _are_new(_said(store.marks(thread.key)), talk):
                stored = _said([line.message for line in store.read(thread.key, 0, _ALL)])
                given = [*system, *stored, *_not_waiting(stored, talk)]
        thread.sync(given, embed=False)
        return store.tail(thread.key, 1)[-1]


def _are_new(stored: Sequence[Mark], talk: Sequence[Message]) -> bool:
    """Whether messages cannot be a resent history: nobody answers in them, and the thread does not begin so."""
    if not stored or not talk or any(message.role != "user" for message in talk):
        return False
    return fingerprint(talk[0].payload) not in (stored[0].fingerprint, stored[-1].fingerprint)


def _not_waiting(stored: Sequence[Message], talk: Sequence[Message]) -> Sequence[Message]:
    """The messages, or none where they are what the thread waits with for an answer: the client asks again."""
    newest = stored[-len(talk) :] if talk else []
    is_waiting = len(newest) == len(talk) and all(map(says_the_same, newest, talk))
    return [] if is_waiting and talk and talk[-1].role != "assistant" else talk


def _best(store: MemoryStore, user: str, talk: Sequence[Message]) -> str | None:
    """The thread that has the most of a history that ends with an answer: the newest that ends there too, if any."""
    end = talk[-_MAX_COMPARED:]
    found = []
    for line in store.said(user, end[-1], _MAX_LINES):
        known = _known(store, line, end)
        if known == len(end) and _is_last(store, line):
            return line.family
        if known == len(talk) or known >= _SURE:
            found.append((known, line.row, line.family))
    return max(found)[-1] if found else None


def _known(store: MemoryStore, line: Line, end: Sequence[Message]) -> int:
    """How many messages, from the newest back, stand in front of a line as in the history, itself included."""
    path = store.read(ThreadKey(line.user, line.thread), max(0, line.position - 2 * len(end)), line.position)
    said = [one.message for one in path if one.message.role not in _INSTRUCTING]
    pairs = zip(reversed(said), reversed(end), strict=False)
    return sum(1 for _ in takewhile(lambda pair: says_the_same(*pair), pairs))


def _waiting(store: MemoryStore, user: str, talk: Sequence[Message]) -> str | None:
    """The thread that is this history and nothing else, without an answer."""
    for line in store.said(user, talk[-1], _MAX_LINES):
        path = store.read(ThreadKey(user, line.family), 0, _ALL) if line.position < 2 * len(talk) + 2 else []
        said = [one.message for one in path if one.message.role not in _INSTRUCTING]
        if len(said) == len(talk) and all(map(says_the_same, said, talk)):
            return line.family
    return None


def _is_last(store: MemoryStore, line: Line) -> bool:
    newest = store.tail(ThreadKey(line.user, line.family), 1)
    return bool(newest) and newest[-1].row == line.row


def _said(told: Sequence[Told]) -> list[Told]:
    """What was said in a thread, without its system prompt and those that took its place."""
    said = [one for one in told if "replaces_system" not in one.metadata]
    return list(dropwhile(lambda one: one.role in _INSTRUCTING, said))

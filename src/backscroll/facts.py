"""Facts: what is known of a user, or of a character, and was not said in a chat.

They are lines of a thread of their own, which no list of threads shows and no chat is stored in, so that they are kept,
embedded, searched, exported, checked and deleted as all lines are. A pinned fact is in every context of its user, the
others are recalled. Each has an id; remembering another text under it takes the old one's place.
"""

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256

from backscroll.errors import MessageError, NotFoundError
from backscroll.messages import parse_message
from backscroll.protocols import MemoryStore
from backscroll.types import FACTS_THREAD, Line, Message, ThreadKey

SPEAKER = "fact"
_ROLE = "system"  # no scope's: facts are searched by the name of their thread alone
_ALL = 2**62  # behind every position


def parse_fact(text: str, fact_id: str | None, created_at: datetime | str | None) -> Message:
    """A fact as a message, checked; without an id it gets one that its text alone decides.

    >>> parse_fact("Alice eats no meat.", None, None).id
    'fact-c710a1cdbd6de423'
    """
    if not isinstance(text, str) or not text.strip():
        raise MessageError(f"a fact is text that is not empty, not {text!r}")
    named = fact_id if fact_id is not None else f"fact-{sha256(text.encode(errors='replace')).hexdigest()[:16]}"
    given = {"role": _ROLE, "name": SPEAKER, "content": text, "id": named, "created_at": created_at}
    return parse_message(given)


def remember(store: MemoryStore, user: str, fact: Message, pinned: bool) -> Line:
    """Store a fact, in place of the one that has its id; the same one is not stored again."""
    key = ThreadKey(user, FACTS_THREAD)
    held = store.find(key, str(fact.id))
    is_new_date = fact.created_at is not None and held is not None and fact.created_at != held.created_at
    if held is None or is_new_date or held.message.payload != fact.payload:
        return store.put(key, fact, pinned)
    return held if held.pinned == pinned else store.pin(key, held.position, pinned)


def facts(store: MemoryStore, user: str) -> list[Line]:
    """A user's facts, in the order of remembering."""
    return store.read(ThreadKey(user, FACTS_THREAD), 0, _ALL)


def forget(store: MemoryStore, user: str, fact_id: str) -> Line:
    """Delete a fact, with its bytes. Raises: NotFoundError."""
    key = ThreadKey(user, FACTS_THREAD)
    held = store.find(key, fact_id)
    if held is None:
        raise NotFoundError(f"user {user!r} has no fact {fact_id!r}: `backscroll facts` lists their ids")
    store.delete(user, FACTS_THREAD, held.position)
    return held


def known_to(store: MemoryStore, users: Iterable[str]) -> tuple[ThreadKey, ...]:
    """The threads of the users' facts, of those who have some."""
    keys = [ThreadKey(user, FACTS_THREAD) for user in dict.fromkeys(users)]
    return tuple(key for key in keys if store.tail(key, 1))


def pinned(store: MemoryStore, keys: Iterable[ThreadKey]) -> tuple[Line, ...]:
    """The pinned facts of some threads of facts, in order."""
    return tuple(line for key in keys for line in store.pinned(key))

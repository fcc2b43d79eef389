"""A history that a caller resends whole -> its new messages in the store, on a branch where it goes another way."""

from collections.abc import Sequence

from backscroll.anchors import FIRST_LINES, REPLACES_SYSTEM, leading_system, system_prompt, times_replaced
from backscroll.fingerprint import fingerprint
from backscroll.protocols import MemoryStore
from backscroll.resend import common, compare
from backscroll.types import Line, Mark, Message, ThreadKey, own_path


def sync(store: MemoryStore, key: ThreadKey, given: Sequence[Message]) -> list[Line]:
    """Store what is new in a resent history; see `Thread.sync`.

    Both are compared by what is kept of each line beside its text: a long history is resent at every turn.

    Returns: the lines newly stored. Nobody else changes the store while they are found.
    """
    leading = leading_system(given)
    talk = given[leading:]
    told = [fingerprint(message.payload) for message in talk]
    with store.exclusive():
        _take_known_branch(store, key, told)
        stored = _talk(store, key)
        resent = compare(_said(store, key, stored, told), told)
        if resent.differs:
            store.fork(key, stored[resent.same].position)
        system = _sync_system(store, key, given[:leading])
        new = talk[resent.known :]
        return [*system, *(store.append(key, new) if new else ())]


def _talk(store: MemoryStore, path: ThreadKey) -> list[Mark]:
    """What the stored lines of a path say, without its system prompt and what replaced it."""
    talk = [mark for mark in store.marks(path) if not times_replaced(mark)]
    return talk[leading_system(talk) :]


def _said(store: MemoryStore, path: ThreadKey, talk: Sequence[Mark], told: Sequence[int]) -> list[int]:
    """The fingerprints of stored lines; one that differs from the resent one is made anew, of the line itself.

    A file that is older may have it by other rules, and a damaged one any number.
    """
    said = [mark.fingerprint for mark in talk]
    for place, (mark, resent) in enumerate(zip(talk, told, strict=False)):
        if mark.fingerprint != resent:
            [line] = store.read(path, mark.position, mark.position)
            said[place] = fingerprint(line.message.payload)
            if said[place] != resent:
                break
    return said


def _take_known_branch(store: MemoryStore, key: ThreadKey, told: Sequence[int]) -> None:
    """Where another branch has more of a resent history than the current one, make it current."""
    family = store.threads(key.user, key.thread)
    if len(family) < 2:
        return
    head = next(info.head for info in family if info.thread == key.thread)
    names = [own_path(info.thread) if info.thread == key.thread else info.thread for info in family]
    paths = {name: ThreadKey(key.user, name) for name in names}
    shared = {name: common(_said(store, path, _talk(store, path), told), told) for name, path in paths.items()}
    current = own_path(key.thread) if head in (None, key.thread) else str(head)
    best = max(names, key=lambda name: (shared[name], name == current))
    if best != current:
        store.switch(key, best)


def _sync_system(store: MemoryStore, key: ThreadKey, given: Sequence[Message]) -> list[Line]:
    """Take over a system prompt that is not the one in force; the old one stays stored."""
    held = system_prompt(store.read(key, 0, FIRST_LINES), store.pinned(key))
    if not given or [line.message.payload for line in held] == [message.payload for message in given]:
        return []
    goes_on = [line.message.payload for line in held] == [message.payload for message in given[: len(held)]]
    if goes_on and not _talk(store, key):  # the whole thread is looked through last
        return store.append(key, given[len(held) :])
    times = 1 + max((times_replaced(line.message) for line in held), default=0)
    replacing = [one._replace(id=None, metadata={**one.metadata, REPLACES_SYSTEM: times}) for one in given]
    lines = store.append(key, replacing)
    for line in lines:
        store.pin(key, line.position, True)
    for line in held:
        if times_replaced(line.message):
            store.pin(key, line.position, False)
    return lines

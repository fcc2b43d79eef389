"""What came in by a channel, and how each message was answered: durable, and shared by all workers on a store.

    received -> response                     answered in the webhook's own response; may be said again to a retry
    received -> later -> sending -> sent     promised, then sent by the channel's API, once

Knows nothing about any channel, nor about language models.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

from backscroll.protocols import MemoryStore

State = Literal["received", "response", "later", "sending", "sent"]
_BEFORE: Mapping[State, tuple[State, ...]] = {  # what a message may be in when it becomes this
    "response": ("received", "response"),
    "later": ("received", "sending"),
    "sending": ("later",),
    "sent": ("sending",),
}
_OPEN = ("received", "later", "sending")
_KEPT = 500  # answered messages that are remembered: a retry comes within seconds
_LOST_AFTER = timedelta(hours=1)  # a sending that began so long ago died, and nobody knows whether it arrived


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that came in by a channel.

    Attributes:
        id: the channel's name for it; a retry has the same.
        user, thread: whom it belongs to.
        text: what it says.
        sender, receiver: addresses to answer to, and from.
        wish: ``stop`` or ``start`` where it is no message but a wish to hear nothing, or to hear again; ``help`` where
            the channel itself has answered.
    """

    id: str
    user: str
    thread: str
    text: str
    sender: str
    receiver: str
    wish: Literal["stop", "start", "help"] | None = None


class Ledger:
    """The messages of one channel. Every call is one transaction."""

    def __init__(self, store: MemoryStore, channel: str) -> None:
        """Take the store that keeps it, and the channel's name."""
        self._store = store
        self._channel = channel
        self._name = f"ledger {channel}"

    def receive(self, incoming: Incoming) -> State:
        """Note that a message came in, if it did not before; returns what it is in."""
        with self._store.exclusive():
            entries = self._read()
            if incoming.id not in entries:
                entries[incoming.id] = {"state": "received", "at": _now(), "message": asdict(incoming)}
                self._write(entries)
            state: State = entries[incoming.id]["state"]
            return state

    def become(self, message_id: str, state: State) -> bool:
        """Change what a message is in; returns False, and changes nothing, where another was there first."""
        with self._store.exclusive():
            entries = self._read()
            entry = entries.get(message_id)
            if entry is None or entry["state"] not in _BEFORE[state]:
                return False
            kept = {"message": entry["message"]} if state in _OPEN else {}
            entries[message_id] = {"state": state, "at": _now(), **kept}
            self._write(entries)
            return True

    def unanswered(self) -> list[Incoming]:
        """The messages that nobody was answered on yet, oldest first."""
        waiting = [entry for entry in self._read().values() if entry["state"] in ("received", "later")]
        return [Incoming(**entry["message"]) for entry in waiting]

    def give_up_lost(self) -> int:
        """Close what died while it was sent: it may have arrived, and nobody gets a message twice; returns how many."""
        with self._store.exclusive():
            entries = self._read()
            before = (datetime.now(UTC) - _LOST_AFTER).isoformat()
            lost = [name for name, entry in entries.items() if entry["state"] == "sending" and entry["at"] < before]
            for name in lost:
                entries[name] = {"state": "sent", "at": _now()}
            if lost:
                self._write(entries)
            return len(lost)

    def wants_nothing(self, user: str) -> bool:
        """Whether a user has asked to hear nothing."""
        return self._store.setting(self._wish(user)) == "stop"

    def keep_wish(self, user: str, wish: Literal["stop", "start"]) -> None:
        """Keep a user's wish; it outlives the user's lines, and is kept without the name."""
        self._store.put_setting(self._wish(user), wish)

    def _wish(self, user: str) -> str:
        return f"wish {self._channel} {sha256(user.encode()).hexdigest()}"

    def _read(self) -> dict[str, dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = json.loads(self._store.setting(self._name) or "{}")
        return entries

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        closed = [name for name, entry in entries.items() if entry["state"] not in _OPEN]
        for name in closed[:-_KEPT]:
            del entries[name]
        self._store.put_setting(self._name, json.dumps(entries, ensure_ascii=False))


def _now() -> str:
    return datetime.now(UTC).isoformat()

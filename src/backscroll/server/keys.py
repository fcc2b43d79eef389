"""Keys for the server: made here, shown once, kept as hashes, each for one tenant.

A key is 256 random bits, so that a plain SHA-256 of it can neither be guessed nor tried out. Knows nothing about HTTP.
"""

import fcntl
import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from backscroll.errors import MessageError, NotFoundError

DEFAULT_TENANT = "default"
_PREFIX = "bs_"
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_SHOWN = 12  # characters of the hash that name a key


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is kept.

    Attributes:
        tenant: whose store it opens.
        hash: SHA-256 of the key, in hexadecimal digits.
        created_at: ISO 8601.
        note: what it is for, in the owner's words.
    """

    tenant: str
    hash: str
    created_at: str
    note: str = ""

    @property
    def id(self) -> str:
        """What names it where the key itself must not be shown."""
        return self.hash[:_SHOWN]


def add_key(path: str, tenant: str = DEFAULT_TENANT, note: str = "") -> tuple[str, Key]:
    """Make a key and keep its hash in the file; returns the key, which is nowhere else, and what is kept of it."""
    if not _TENANT.fullmatch(tenant):
        raise MessageError(f"a tenant is named by small letters, digits, - and _, at most 63, not {tenant!r}")
    secret = _PREFIX + secrets.token_urlsafe(32)
    key = Key(tenant, _hash(secret), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", note)
    with _alone(path):
        _write(path, [*(read_keys(path) if Path(path).exists() else []), key])
    return secret, key


def remove_key(path: str, key_id: str) -> Key:
    """Take a key out of the file; it opens nothing from now on. Raises: NotFoundError."""
    with _alone(path):
        keys = read_keys(path)
        found = [key for key in keys if key.id == key_id]
        if not found:
            raise NotFoundError(f"{path} has no key {key_id!r}; it has {', '.join(key.id for key in keys) or 'none'}")
        _write(path, [key for key in keys if key.id != key_id])
    return found[0]


def read_keys(path: str) -> list[Key]:
    """The keys of a file. Raises: MessageError where it is none."""
    try:
        kept = json.loads(Path(path).read_text(encoding="utf-8"))["keys"]
        keys = [Key(**one) for one in kept]
        if not all(_TENANT.fullmatch(key.tenant) and re.fullmatch(r"[0-9a-f]{64}", key.hash) for key in keys):
            raise ValueError("a tenant or a hash is none")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise MessageError(f"{path} is no file of keys, which `backscroll keys add` makes: {error}") from error
    return keys


class Keyring:
    """The keys of a file, read again when it changes: a key that was removed opens nothing any more."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises: MessageError."""
        self._path = path
        self._reading = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._keys: list[tuple[bytes, Key]] = []
        self._read()

    def count(self) -> int:
        """How many keys there are."""
        return len(self._keys)

    def find(self, secret: str) -> Key | None:
        """The key that was given, or None. Takes as long for a wrong one as for a right one.

        Raises: MessageError where the file cannot be read any more: then nobody gets in.
        """
        self._read()
        given = bytes.fromhex(_hash(secret))
        found = None
        for digest, key in self._keys:
            if hmac.compare_digest(digest, given):
                found = key
        return found

    def _read(self) -> None:
        try:
            stat = Path(self._path).stat()
        except OSError as error:
            raise MessageError(f"{self._path} cannot be read: {error}") from error
        seen = (stat.st_mtime_ns, stat.st_ino)
        with self._reading:
            if seen != self._seen:
                self._keys = [(bytes.fromhex(key.hash), key) for key in read_keys(self._path)]
                self._seen = seen


def _hash(secret: str) -> str:
    return sha256(secret.encode(errors="surrogateescape")).hexdigest()


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """One change of the file at a time, by a lock on its folder that goes with the process."""
    try:
        folder = os.open(Path(path).parent, os.O_RDONLY)
    except OSError as error:
        raise MessageError(f"{path} cannot be written: {error}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(path: str, keys: Sequence[Key]) -> None:
    """Write the file whole, readable by its owner alone."""
    text = json.dumps({"keys": [asdict(key) for key in keys]}, indent=2) + "\n"
    part = Path(f"{path}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise MessageError(f"{path} cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)

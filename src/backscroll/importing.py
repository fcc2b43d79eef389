"""A file of chats -> checked messages, each with the thread that it goes to.

    common lines   JSONL: {"conversation", "thread", "index", "speaker", "role", "text", "time", "id"}; optional
                   "message" (an OpenAI-style dict, taken as it is), "metadata", "pinned"
    messages       OpenAI-style: a list of them, or JSONL with one a line
    chats          {"messages": [...]}, with "user" and "thread" where it has them; a list of chats, or JSONL

The form is recognized by content, gzip too. A file is read as a stream, so that it may be read twice: to check all of
it before the first line is stored, then to store it. Knows nothing about stores.
"""

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from backscroll.errors import ImportFileError, MessageError
from backscroll.messages import parse_message, parse_time
from backscroll.types import FACTS_THREAD, Message, ThreadKey

DEFAULT_USER = "default"
EXPECTED = (
    'expected lines {"conversation", "thread", "role", "text", …}, messages {"role", "content"} '
    'or chats {"messages": […]}, as JSON or one a line'
)
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_LINE_KEYS = frozenset({"conversation", "thread", "index", "speaker", "role", "text", "time", "id"})
_KNOWN_KEYS = _LINE_KEYS | {"message", "metadata", "pinned"}
_ENDINGS = (".gz", ".jsonl", ".ndjson", ".json")

_SORTED = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))  # json.dumps makes one each time

Progress = Callable[[int], None]  # told how many bytes of the file are read


@dataclass(frozen=True, slots=True)
class ImportFile:
    """A file to import, and where its messages go.

    Attributes:
        path: what is read.
        name: what it is called in errors, and what a chat without a thread is called after.
        user, thread: where all of it goes; None leaves it to the file.
    """

    path: Path
    name: str
    user: str | None = None
    thread: str | None = None

    @property
    def stem(self) -> str:
        """The file's name without its endings.

        >>> ImportFile(Path("a/chat.jsonl.gz"), "a/chat.jsonl.gz").stem
        'chat'
        """
        stem = Path(self.name).name
        for ending in _ENDINGS:
            stem = stem.removesuffix(ending) or stem
        return stem


class Record(NamedTuple):
    """A message of a file.

    Attributes:
        key: the thread that it goes to.
        message: checked, with an id: its own, or one made from its thread, place and content.
        order: number of its chat in the file, index in the chat.
        pinned: whether it was pinned where it was exported.
        line_number: where it stands in the file; None in a JSON document of several lines.
    """

    key: ThreadKey
    message: Message
    order: tuple[int, int]
    pinned: bool
    line_number: int | None


@dataclass(slots=True)
class Checked:
    """What a file that can be imported holds.

    Attributes:
        messages: how many.
        keys: the threads that they go to.
        is_ordered: whether the indexes of each chat grow.
    """

    messages: int = 0
    keys: set[ThreadKey] = field(default_factory=set)
    is_ordered: bool = True


def check_file(file: ImportFile, progress: Progress | None = None) -> Checked:
    """Read a file to its end, and store nothing.

    Raises: ImportFileError with the file and the line of the first thing that is wrong.
    """
    found = Checked()
    newest: dict[int, int] = {}  # chat -> index
    contents: dict[bytes, tuple[bytes, int | None]] = {}  # thread and id -> content, line: digests, to be small
    for record in _stream(file, progress):
        chat, index = record.order
        found.is_ordered &= newest.get(chat, index) <= index
        newest[chat] = index
        found.messages += 1
        found.keys.add(record.key)
        content = _digest(record.message.payload)
        held, line_number = contents.setdefault(
            _digest([*record.key, record.message.id]), (content, record.line_number)
        )
        if held != content:
            raise ImportFileError(file.name, record.line_number, _clash(record, line_number))
    if not found.messages:
        raise ImportFileError(file.name, None, f"there is no message in it: {EXPECTED}")
    return found


def read_file(file: ImportFile, is_ordered: bool = True) -> Iterator[Record]:
    """The messages of a file, chat by chat in the order of their indexes.

    Args:
        is_ordered: what `check_file` found; where it is False all messages are held in RAM to be sorted.

    Raises: ImportFileError.
    """
    if is_ordered:
        return _stream(file, None)
    return iter(sorted(_stream(file, None), key=lambda record: record.order))


def _stream(file: ImportFile, progress: Progress | None) -> Iterator[Record]:
    reading = _Reading(file)
    for line_number, value in _values(file, progress):
        try:
            yield from reading.records(value, line_number)
        except MessageError as error:
            raise ImportFileError(file.name, line_number, str(error)) from error


# Bytes -> JSON values


def _values(file: ImportFile, progress: Progress | None) -> Iterator[tuple[int | None, Any]]:
    """The JSON values of a file with their lines: one a line, or all of it as one document."""
    with _opened(file) as (lines, tell):
        first = True
        for number, line in enumerate(_lines(file, lines, tell, progress), 1):
            if not line or line.isspace():
                continue
            text = _decoded(file, number, line)
            try:
                yield number, json.loads(text)
            except (ValueError, RecursionError) as error:
                if not first:
                    raise ImportFileError(file.name, number, f"this is not JSON: {_said(error)}") from error
                yield None, _document(file, number, text, lines)
                return
            first = False


def _document(file: ImportFile, number: int, begun: str, rest: BinaryIO) -> Any:
    """A JSON value of several lines; `begun` is its first one, `number` its place."""
    with _read_errors(file):
        text = begun + _decoded(file, number + 1, rest.read())
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"this is not JSON: {error.msg} at column {error.colno}; {EXPECTED}"
        raise ImportFileError(file.name, number - 1 + error.lineno, problem) from error
    except (ValueError, RecursionError) as error:
        raise ImportFileError(file.name, number, f"this is not JSON: {_said(error)}") from error


def _lines(file: ImportFile, lines: BinaryIO, tell: Callable[[], int], progress: Progress | None) -> Iterator[bytes]:
    with _read_errors(file):
        for number, line in enumerate(lines):
            if progress and number % 1000 == 0:
                progress(tell())
            yield line if number else line.removeprefix(_BOM)


@contextmanager
def _opened(file: ImportFile) -> Iterator[tuple[BinaryIO, Callable[[], int]]]:
    """The file's bytes, unpacked where they are packed, and what tells how far the file itself is read."""
    if file.path.is_dir():
        raise ImportFileError(file.name, None, "this is a folder: name the files in it")
    with _read_errors(file), file.path.open("rb") as raw:
        is_packed = raw.read(2) == _GZIP
        raw.seek(0)
        if is_packed:
            with io.BufferedReader(gzip.GzipFile(fileobj=raw)) as unpacked:
                yield unpacked, raw.tell
        else:
            yield raw, raw.tell


@contextmanager
def _read_errors(file: ImportFile) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ImportFileError(file.name, None, "there is no such file") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ImportFileError(file.name, None, f"the gzip data is damaged or cut off: {error}") from error
    except OSError as error:
        raise ImportFileError(file.name, None, f"it cannot be read: {error.strerror or error}") from error


def _decoded(file: ImportFile, number: int, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line_number = number + data.count(b"\n", 0, error.start)
        problem = f"this is not UTF-8: byte 0x{data[error.start]:02x}; convert the file, or look whether it is text"
        raise ImportFileError(file.name, line_number, problem) from error


# JSON values -> messages


class _Reading:
    """What is known of a file while its values are read one after the other."""

    def __init__(self, file: ImportFile) -> None:
        self._file = file
        self._form: str | None = None
        self._chats: dict[object, int] = {}  # what tells chats apart -> number
        self._places: Counter[object] = Counter()  # number of a chat, or a thread -> messages so far

    def records(self, value: Any, line_number: int | None) -> Iterator[Record]:
        """The messages in a JSON value. Raises: MessageError."""
        if isinstance(value, list) and value and not _is_message(value[0]):
            for place, item in enumerate(value):
                with _place_named(f"item {place} of the list"):
                    yield from self._found(item, line_number)
        else:
            yield from self._found(value, line_number)

    def _found(self, item: Any, line_number: int | None) -> Iterator[Record]:
        form = _form(item)
        self._form = self._form or form
        if form != self._form:
            raise MessageError(f"this is of the form of {form}, and the file began with {self._form}")
        if form == "lines":
            yield self._line(item, line_number)
        elif form == "messages":
            yield self._message(item, self._key(item, 1), 0, line_number)
        else:
            yield from self._chat(item, line_number)

    def _chat(self, item: Any, line_number: int | None) -> Iterator[Record]:
        chat = len(self._chats)
        self._chats[chat] = chat
        given = item["messages"] if isinstance(item, dict) else item
        if not isinstance(given, list):
            raise MessageError(f'"messages" is a list of messages, not {type(given).__name__}')
        key = self._key(item if isinstance(item, dict) else {}, chat + 1)
        for place, one in enumerate(given):
            with _place_named(f"message {place}"):
                yield self._message(one, key, chat, line_number)

    def _key(self, chat: Mapping[str, Any], number: int) -> ThreadKey:
        """Where a chat goes: a file's first one is called as the file, the others have their number behind it."""
        stem = self._file.stem if number == 1 else f"{self._file.stem}-{number}"
        own = chat if "messages" in chat else {}
        user, thread = self._file.user or own.get("user"), self._file.thread or own.get("thread")
        return ThreadKey(_name("user", user or DEFAULT_USER), _name("thread", thread or stem))

    def _message(self, given: Any, key: ThreadKey, chat: int, line_number: int | None) -> Record:
        index = self._places[chat]
        self._places[chat] += 1
        return self._record(key, parse_message(given), (chat, index), False, line_number)

    def _line(self, line: Mapping[str, Any], line_number: int | None) -> Record:
        user = self._file.user or _name("conversation", _field(line, "conversation"))
        thread = self._file.thread or _name("thread", _field(line, "thread"))
        told = (line.get("conversation"), line.get("thread"))
        is_text = type(told[0]) is type(told[1]) is str
        chat = self._chats.setdefault(told if is_text else json.dumps(told), len(self._chats))
        index = line.get("index")
        if index is None:
            index = self._places[chat]
        elif not isinstance(index, int) or isinstance(index, bool):
            raise MessageError(f'"index" is a whole number, not {index!r}')
        self._places[chat] = index + 1
        pinned = line.get("pinned", False)
        if not isinstance(pinned, bool):
            raise MessageError(f'"pinned" is true or false, not {pinned!r}')
        return self._record(ThreadKey(user, thread), _said_in(line), (chat, index), pinned, line_number)

    def _record(
        self, key: ThreadKey, message: Message, order: tuple[int, int], pinned: bool, line_number: int | None
    ) -> Record:
        """The message with an id, so that importing it twice is importing it once."""
        if message.id is None:
            made = _digest([*key, order[1] if self._form == "lines" else self._places[key], message.payload]).hex()
            message = message._replace(id=f"imported-{made}")
        _name("id", message.id)
        if key.thread == FACTS_THREAD and message.role != "system":
            raise MessageError(f"in thread {key.thread!r} there are facts alone, of role system: name another thread")
        self._places[key] += 1
        return Record(key, message, order, pinned, line_number)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value and not value.keys() & {"conversation", "text", "messages"}


def _form(item: Any) -> str:
    """Which form a value has. Raises: MessageError."""
    if isinstance(item, list):
        return "chats"
    if not isinstance(item, dict):
        raise MessageError(f"this is {_kind(item)}: {EXPECTED}")
    if "messages" in item:
        return "chats"
    if "conversation" in item or "text" in item:
        return "lines"
    if "role" in item or "content" in item:
        return "messages"
    keys = ", ".join(list(item)[:8])
    raise MessageError(f"this is an object with {keys or 'no keys'}: {EXPECTED}")


def _said_in(line: Mapping[str, Any]) -> Message:
    """The message of a common line; what the form does not name is kept as metadata."""
    beside = {key: value for key, value in line.items() if key not in _KNOWN_KEYS}
    metadata = line.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise MessageError(f'"metadata" is an object, not {_kind(metadata)}')
    whole = line.get("message")
    if whole is not None and not isinstance(whole, dict):
        raise MessageError(f'"message" is an OpenAI-style message, not {_kind(whole)}')
    given = {**(whole if whole is not None else _plain(line)), "metadata": {**beside, **metadata}}
    if line.get("id") is not None:
        given["id"] = line["id"]
    try:
        time = parse_time(line.get("time"))
    except MessageError as error:
        raise MessageError(f'"time" is ISO 8601 text or seconds since 1970, not {line["time"]!r}') from error
    return parse_message(given if time is None else {**given, "created_at": time})


def _plain(line: Mapping[str, Any]) -> dict[str, Any]:
    role, text, speaker = _field(line, "role"), _field(line, "text"), line.get("speaker")
    if not isinstance(text, str):
        raise MessageError(f'"text" is text, not {_kind(text)}')
    if not isinstance(speaker, str | None):
        raise MessageError(f'"speaker" is text, not {_kind(speaker)}')
    return {"role": role, "content": text} | ({"name": speaker} if speaker and speaker != role else {})


def _field(line: Mapping[str, Any], key: str) -> Any:
    if key not in line:
        raise MessageError(f'this line has no "{key}"')
    return line[key]


def _name(what: str, given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise MessageError(f'"{what}" is text that is not empty, not {given!r}')
    try:
        if not given.isascii():
            given.encode()
    except UnicodeEncodeError as error:
        raise MessageError(f'"{what}" holds half of a surrogate pair, which is no text') from error
    return given


@contextmanager
def _place_named(place: str) -> Iterator[None]:
    try:
        yield
    except MessageError as error:
        raise MessageError(f"{place}: {error}") from error


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _said(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)


def _clash(record: Record, line_number: int | None) -> str:
    where = "before" if line_number is None else f"on line {line_number}"
    user, thread = record.key
    return (
        f"id {record.message.id!r} stands {where} already, with another content, in thread {thread!r} of user "
        f"{user!r}: an id is unique in its thread (do --user or --thread put together what was apart?)"
    )


def _digest(value: object) -> bytes:
    return blake2b(_SORTED.encode(value).encode(), digest_size=16).digest()

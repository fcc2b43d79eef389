"""Files of conversations, questions and rewrites -> values, with what is known to be wrong in them left out.

    lines       the common line form: see `backscroll.importing`
    questions   JSONL: {"conversation", "question", "answer", "category", "evidence": [line ids], "asked_at",
                "unanswerable"}; where a set has them "evidence_any", "evidence_threads", "spans", "history", "audit_*"
    rewrites    JSONL: {"id", "history": [{"role", "text"}], "message", "rewrite"}; "references", "kind"

Files that end in .gz are read as they are. Knows nothing about what is done with them.
"""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from backscroll.errors import ImportFileError
from backscroll.importing import ImportFile, Record, check_file, read_file
from backscroll.types import Message

# A public audit of LoCoMo found these answers to be made up, or given to the wrong speaker: nothing can be recalled.
DROPPED_AUDITS = frozenset({"HALLUCINATION", "ATTRIBUTION_ERROR"})
# Questions of LongMemEval that are reported wrong upstream.
KNOWN_NOISE = frozenset({"370a8ff4", "gpt4_88806d6e", "dd2973ad", "9aaed6a3", "gpt4_f420262d", "eac54add"})

Kind = Literal["answerable", "unanswerable", "small talk"]
Turn = tuple[str, str]  # role, text
Value = TypeVar("Value")
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Conversation:
    """All that was said before the questions on it.

    Attributes:
        name: the user that it is imported as.
        threads: name -> messages, threads in the order of time.
        thread_of: message id -> its thread; ids are unique in a conversation.
        id_at: index of a line in its file's thread -> its id; only of use in conversations of one thread.
    """

    name: str
    threads: Mapping[str, tuple[Message, ...]]
    thread_of: Mapping[str, str]
    id_at: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Question:
    """A question on a conversation, with the lines that hold its answer.

    Attributes:
        evidence: ids of the lines that hold the answer, audited where there is an audit.
        is_any_enough: one of them answers as well as all.
        evidence_threads: the threads that hold the answer, where a set tells them.
        spans: (first, last) indexes of evidence that is a run of lines, both included.
        history: what was said in the asking thread before it.
        asked_at: ISO 8601; None where the set has no time.
    """

    id: str
    conversation: str
    text: str
    answer: str
    category: str
    kind: Kind
    evidence: tuple[str, ...] = ()
    is_any_enough: bool = False
    evidence_threads: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    history: tuple[Turn, ...] = ()
    asked_at: str | None = None


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions that are asked, and how many are not, by the reason."""

    asked: tuple[Question, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A message with what was said before it, and a human's rewrite of it that stands alone.

    Attributes:
        set: the file that it is from.
        kind: of what is missing in it; empty where the set does not say.
        references: all human rewrites of it; the first is the set's own.
    """

    id: str
    set: str
    kind: str
    history: tuple[Turn, ...]
    message: str
    references: tuple[str, ...]


@dataclass(slots=True)
class _Gathered:
    """A conversation while its lines are read."""

    threads: dict[str, list[Message]] = field(default_factory=dict)
    thread_of: dict[str, str] = field(default_factory=dict)
    id_at: dict[int, str] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        self.threads.setdefault(record.key.thread, []).append(record.message)
        self.thread_of[str(record.message.id)] = record.key.thread
        self.id_at[record.order[1]] = str(record.message.id)


def read_conversations(path: Path) -> dict[str, Conversation]:
    """The conversations of a file of lines, by name. Raises: ImportFileError."""
    file = ImportFile(path, str(path))
    checked = check_file(file)
    gathered: dict[str, _Gathered] = {}
    for record in read_file(file, checked.is_ordered):
        gathered.setdefault(record.key.user, _Gathered()).take(record)
    return {name: _conversation(name, found) for name, found in gathered.items()}


def read_questions(path: Path, conversations: Mapping[str, Conversation]) -> Questions:
    """The questions of a file that can be asked of the conversations, in the order of the file.

    Left out are those that an audit or upstream found wrong, and answerable ones without any evidence.
    Raises: ImportFileError; also for a conversation that is not there.
    """
    asked, left_out = [], Counter[str]()
    for line_number, question, given in _parsed(path, _question):
        conversation = conversations.get(question.conversation)
        if conversation is None:
            problem = f"there are no lines of conversation {question.conversation!r}"
            raise ImportFileError(str(path), line_number, problem)
        reason = _reason_to_leave_out(question, given, conversation)
        if reason:
            left_out[reason] += 1
        else:
            asked.append(question)
    return Questions(tuple(asked), dict(left_out))


def read_rewrites(path: Path) -> list[Rewrite]:
    """The rewrites of a file, in its order. Raises: ImportFileError."""
    name = path.name.split(".")[0]
    return [rewrite for _, rewrite, _ in _parsed(path, lambda given: _rewrite(name, given))]


def _conversation(name: str, found: _Gathered) -> Conversation:
    def begins(thread: str) -> float:
        first = found.threads[thread][0].created_at
        return first.timestamp() if first else 0.0  # without times the order of the file stays

    threads = {thread: tuple(found.threads[thread]) for thread in sorted(found.threads, key=begins)}
    return Conversation(name, threads, found.thread_of, found.id_at)


def _question(given: Mapping[str, Any]) -> Question:
    kind: Kind = "unanswerable" if given.get("unanswerable") else "answerable"
    answer = given.get("audit_answer") or given.get("answer")
    return Question(
        id=str(given["id"] if "id" in given else f"{given['conversation']}/{given['question']}"),
        conversation=str(given["conversation"]),
        text=str(given["question"]),
        answer="" if answer is None else str(answer),
        category=str(given.get("category") or ""),
        kind=kind,
        evidence=tuple(map(str, given.get("audit_evidence") or given.get("evidence") or ())),
        is_any_enough=bool(given.get("evidence_any")),
        evidence_threads=tuple(map(str, given.get("evidence_threads") or ())),
        spans=tuple((int(first), int(last)) for first, last in given.get("spans") or ()),
        history=_history(given),
        asked_at=given.get("asked_at"),
    )


def _reason_to_leave_out(question: Question, given: Mapping[str, Any], conversation: Conversation) -> str:
    """Why a question is not asked; empty where it is."""
    if given.get("audit_error") in DROPPED_AUDITS:
        return "found wrong by the audit"
    if question.id in KNOWN_NOISE:
        return "reported wrong upstream"
    if question.kind == "unanswerable":
        return ""
    if not question.evidence and not question.evidence_threads:
        return "answerable, and no evidence is named"
    missing = [one for one in question.evidence if one not in conversation.thread_of]
    return "its evidence is not among the lines" if missing else ""


def _rewrite(name: str, given: Mapping[str, Any]) -> Rewrite:
    references = (given["rewrite"], *given.get("references", ()))
    return Rewrite(
        id=str(given["id"]),
        set=name,
        kind=str(given.get("kind") or ""),
        history=_history(given),
        message=str(given["message"]),
        references=tuple(dict.fromkeys(map(str, references))),
    )


def _history(given: Mapping[str, Any]) -> tuple[Turn, ...]:
    turns: Sequence[Mapping[str, Any]] = given.get("history") or ()
    return tuple((str(turn["role"]), str(turn["text"])) for turn in turns)


def _parsed(path: Path, parse: Callable[[Mapping[str, Any]], Value]) -> Iterator[tuple[int, Value, Mapping[str, Any]]]:
    """The values of a JSONL file with their line numbers and as they were given. Raises: ImportFileError."""
    for line_number, text in enumerate(_text(path).split("\n"), 1):
        if not text.strip():
            continue
        try:
            given = json.loads(text)
            yield line_number, parse(given), given
        except KeyError as error:
            raise ImportFileError(str(path), line_number, f"there is no {error} in it") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise ImportFileError(str(path), line_number, f"this is not of the form: {error}") from error


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data.startswith(_GZIP) else data).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ImportFileError(str(path), None, "there is no such file") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ImportFileError(str(path), None, f"it cannot be read: {error}") from error

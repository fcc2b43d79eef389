"""What was measured of each question, kept in a file line by line, so that an interrupted run goes on.

The first line of the file names the run: data, settings, embedder, code. A file of another run, or of one that was
finished, begins anew. Knows nothing about how it is measured.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from backscroll.errors import StoreError
from backscroll.evaluation.datasets import Kind

QuestionKey = tuple[str, str]  # conversation, id


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the context of one question was, by one preset within one budget.

    Attributes:
        tokens: what the context costs; seconds: what asking took.
        found: for each evidence line whether its whole text is in the context.
        answered: whether the answer is in it; None where it stands in no evidence line word for word.
        hits: for each span whether half of it is in the context.
        recalled: how many recalled lines are in it; with_exchange: how many of them with their whole exchange.
        refused: why there is no context: the prompt and the anchors alone are too long; empty where there is one.
    """

    preset: str
    max_tokens: int
    tokens: int = 0
    seconds: float = 0.0
    found: tuple[bool, ...] = ()
    answered: bool | None = None
    hits: tuple[bool, ...] = ()
    recalled: int = 0
    with_exchange: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """All that was measured of one question.

    Attributes:
        roles: of the evidence lines, in the order of `Outcome.found`.
        relevant: what counts as relevant -> the threads that do; see `backscroll.evaluation.replay`.
        rankings: preset -> threads, by their best line.
    """

    id: str
    conversation: str
    category: str
    kind: Kind
    is_any_enough: bool
    roles: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    relevant: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rankings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Results:
    """The results of a run, in a file where one is named."""

    def __init__(self, path: Path | None, identity: Mapping[str, Any], wanted: Iterable[QuestionKey]) -> None:
        """Read what an interrupted run of the same identity left. Raises: StoreError.

        Args:
            path: of the JSONL file; None keeps the results in RAM.
            identity: JSON values that name the run.
            wanted: the questions of the run: a file that has them all was finished.
        """
        self._path = path
        self._found: dict[QuestionKey, Result] = {}
        head = json.dumps(dict(identity), sort_keys=True)
        if path is None:
            return
        try:
            kept, found = _read(path, head)
            if set(wanted) <= found.keys():
                kept, found = head + "\n", {}
            path.write_text(kept, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"{path} cannot be used for the results: {error}") from error
        self._found = found

    def __contains__(self, key: QuestionKey) -> bool:
        """Whether a question was measured."""
        return key in self._found

    def __getitem__(self, key: QuestionKey) -> Result:
        """What was measured of a question."""
        return self._found[key]

    def add(self, result: Result) -> None:
        """Keep a result; it is in the file when this returns."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")
        self._found[result.conversation, result.id] = result


def code_digest() -> str:
    """What the package's own code is: results of another code are not mixed with those of this one."""
    digest = blake2b(digest_size=8)
    folder = Path(str(files("backscroll")))
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in name.parts):
            digest.update(name.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """What a file holds."""
    return blake2b(path.read_bytes(), digest_size=8).hexdigest()


def _read(path: Path, head: str) -> tuple[str, dict[QuestionKey, Result]]:
    """What of a file belongs to this run, as text and as results; a line that was cut off does not."""
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    if not lines or lines[0] != head:
        return head + "\n", {}
    whole = lines[1:-1]  # behind the last line end stands nothing, or what was being written
    results = [_result(json.loads(line)) for line in whole]
    return "\n".join([head, *whole, ""]), {(result.conversation, result.id): result for result in results}


def _result(given: dict[str, Any]) -> Result:
    return Result(
        id=given["id"],
        conversation=given["conversation"],
        category=given["category"],
        kind=cast(Kind, given["kind"]),
        is_any_enough=given["is_any_enough"],
        roles=tuple(given["roles"]),
        outcomes=tuple(_outcome(one) for one in given["outcomes"]),
        relevant={name: tuple(threads) for name, threads in given["relevant"].items()},
        rankings={name: tuple(threads) for name, threads in given["rankings"].items()},
    )


def _outcome(given: dict[str, Any]) -> Outcome:
    return Outcome(**{**given, "found": tuple(given["found"]), "hits": tuple(given["hits"])})

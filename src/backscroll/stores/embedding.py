"""Vectors in the file: which lines have none yet, how they are added and forgotten."""

from collections.abc import Sequence

import apsw
import numpy as np

from backscroll.errors import NotFoundError, StoreError
from backscroll.stores.matrix import encode
from backscroll.types import Vectors


def count_unembedded(database: apsw.Connection, user_id: int | None) -> int:
    """How many lines have no vectors yet; of all users where user_id is None."""
    query = "SELECT count(*) FROM lines WHERE passages IS NULL"
    if user_id is None:
        return int(database.execute(query).get)
    return int(database.execute(query + " AND user_id = ?", (user_id,)).get)


def add(
    database: apsw.Connection, rows: Sequence[int], passages: Sequence[Sequence[tuple[int, int]]], vectors: Vectors
) -> None:
    """Store the vectors of lines that are still there and have none."""
    if len(vectors) != sum(map(len, passages)) or len(rows) != len(passages):
        raise ValueError(f"{len(rows)} lines with {sum(map(len, passages))} passages got {len(vectors)} vectors")
    if len(vectors):
        _check_dimension(database, vectors.shape[1])
    stored = iter(encode(np.asarray(vectors)))
    for row, spans in zip(rows, passages, strict=True):
        own = [next(stored) for _ in spans]
        user_id = database.execute("SELECT user_id FROM lines WHERE row = ? AND passages IS NULL", (int(row),)).get
        if user_id is None:
            continue
        database.execute("UPDATE lines SET passages = ? WHERE row = ?", (len(own), int(row)))
        number = database.execute(
            "UPDATE users SET next_vector = next_vector + ? WHERE user_id = ? RETURNING next_vector",
            (len(own), user_id),
        ).get - len(own)
        database.executemany(
            "INSERT INTO vectors (user_id, number, row, passage, start, stop, vector) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (user_id, number + passage, int(row), passage, int(start), int(stop), vector)
                for passage, ((start, stop), vector) in enumerate(zip(spans, own, strict=True))
            ],
        )


def _check_dimension(database: apsw.Connection, dimension: int) -> None:
    kept = database.execute("SELECT length(vector) FROM vectors LIMIT 1").get
    if kept not in (None, dimension):
        raise StoreError(
            f"the store's vectors have {kept} numbers, these have {dimension}: one store, one embedder; "
            "`backscroll reembed` makes them anew"
        )


def passage_of(database: apsw.Connection, row: int, passage: int) -> tuple[int, int]:
    """The characters of a line's text that a vector stands for. Raises: NotFoundError."""
    found = database.execute(
        "SELECT start, stop FROM vectors WHERE row = ? AND passage = ?", (int(row), int(passage))
    ).get
    if found is None:
        raise NotFoundError(f"line {row} has no passage {passage}")
    start, stop = found
    return start, stop


def forget_all(database: apsw.Connection) -> None:
    """Drop every vector; caches notice by the users' counts."""
    database.execute("DELETE FROM vectors")
    database.execute("UPDATE lines SET passages = NULL WHERE passages IS NOT NULL")
    database.execute("UPDATE users SET deletions = deletions + 1")

"""Vectors in the file: which lines have none yet, how they are added and forgotten."""

from collections import Counter
from collections.abc import Sequence
from itertools import count

import apsw
import numpy as np

from backscroll.errors import NotFoundError, StoreError
from backscroll.stores.connection import listed
from backscroll.stores.connection import rows as rows_of
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
    users = _pending(database, rows)
    stored = iter(encode(np.asarray(vectors)))
    counts: dict[int, int] = {}  # row -> how many
    added: list[tuple[int, int, int, int, int, bytes]] = []
    for row, spans in zip(map(int, rows), passages, strict=True):
        own = [next(stored) for _ in spans]
        if row in users and row not in counts:
            counts[row] = len(own)
            placed = enumerate(zip(spans, own, strict=True))
            added += [
                (users[row], row, passage, int(start), int(stop), one) for passage, ((start, stop), one) in placed
            ]
    each = Counter(user_id for user_id, *_ in added)
    numbers = {user_id: count(_first_number(database, user_id, total)) for user_id, total in each.items()}
    database.executemany("UPDATE lines SET passages = ? WHERE row = ?", [(total, row) for row, total in counts.items()])
    database.executemany(
        "INSERT INTO vectors (user_id, number, row, passage, start, stop, vector) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(user_id, next(numbers[user_id]), *vector) for user_id, *vector in added],
    )


def _pending(database: apsw.Connection, rows: Sequence[int]) -> dict[int, int]:
    """Those of the lines that are there and have no vectors, each with its user."""
    query = "SELECT row, user_id FROM lines WHERE row IN (SELECT value FROM json_each(?)) AND passages IS NULL"
    return dict(rows_of(database, query, (listed(map(int, rows)),)))


def _first_number(database: apsw.Connection, user_id: int, total: int) -> int:
    """Give the user's next vectors their numbers."""
    query = "UPDATE users SET next_vector = next_vector + ? WHERE user_id = ? RETURNING next_vector"
    return int(database.execute(query, (total, user_id)).get) - total


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

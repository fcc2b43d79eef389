"""FTS5 against the text index in RAM: what a query, a new line and a deletion take at several sizes.

Run on a quiet machine, from the project's folder:

    python benchmarks/text_index.py [--lines 10000 60000] [--json]

The text is made up: words of a list of 30,000, drawn by Zipf's law less its first 100 words, which would be stop words
(the n-th with a chance in proportion to 1 / (n + 100)), 3 to 14 a line; a query is eight different words drawn the same
way. All lines are one user's. FTS5 is given what favors it: no copy of the text (`content=''`), and tokens that begin
with the user's number, so that one table serves all users and a query still reads no other user's postings. Both
return the 512 best lines by BM25. Lines are added one a transaction, without waiting for the disk
(`synchronous = OFF`): that would be most of the time, and the same for both.

Also found here: how many of 1,000 deleted words can still be read in the file, with `PRAGMA secure_delete` on: of FTS5
with and without its own option `secure-delete`, and of an ordinary table with an index.
"""
# ruff: noqa: S311

import argparse
import json
import os
import random
import string
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice, product
from pathlib import Path

import apsw
import numpy as np

from backscroll.stores import SQLiteStore
from backscroll.stores.text_index import pack
from backscroll.terms import terms
from backscroll.types import Message, Scope, ThreadKey

WORDS = 30_000
STOP_WORDS = 100  # so many of the most frequent words are left out
QUERIES = 300
QUERY_TERMS = 8
ADDED_LINES = 300
DELETED_WORDS = 1000
BEST = 512  # backscroll.recall.search.MAX_CANDIDATES
KEY = ThreadKey("alice", "chat")
SCOPE = Scope("alice")
FTS5 = "CREATE VIRTUAL TABLE found USING fts5 (terms, content='', detail={detail})"
ASK = "SELECT rowid, bm25(found) FROM found WHERE found MATCH ? ORDER BY rank LIMIT ?"


class MadeUpText:
    """Words by Zipf's law; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        syllables = [c + v for c, v in product("bdfghklmnprstvz", "aeiou")]
        words = ["".join(parts) for parts in product(syllables, repeat=3)]
        random.Random(0).shuffle(words)  # the same list, whatever the seed
        self._words = words[:WORDS]
        self._weights = list(accumulate(1 / (n + STOP_WORDS) for n in range(1, WORDS + 1)))

    def words(self, count: int) -> list[str]:
        """So many words; some of them twice."""
        return self._chance.choices(self._words, cum_weights=self._weights, k=count)

    def lines(self, count: int) -> Iterator[str]:
        """Lines of 3 to 14 words."""
        for _ in range(count):
            yield " ".join(self.words(self._chance.randint(3, 14)))

    def queries(self, count: int) -> list[list[str]]:
        """The terms of queries, no term twice in one."""
        return [list(dict.fromkeys(terms(" ".join(self.words(40)))))[:QUERY_TERMS] for _ in range(count)]


def messages_of(texts: Sequence[str]) -> list[Message]:
    """Messages of a user that say these texts."""
    return [Message("user", {"role": "user", "content": text}, text) for text in texts]


def count_message(message: Message) -> int:
    """Tokens, about: counting them right is not what is measured."""
    return len(message.text) // 4 + 3


def percentiles(spent: Sequence[float], name: str) -> dict[str, float]:
    """Milliseconds of spent seconds."""
    return {f"{name}_p{p}_ms": 1000 * float(np.percentile(spent, p)) for p in (50, 95)}


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def scoped(found: Sequence[str]) -> str:
    """Terms as tokens of one user, in the text that FTS5 is given."""
    return " ".join(f"u1x{term}" for term in found)


def opened(path: Path) -> apsw.Connection:
    """A file that is written as the store's is, but for waiting."""
    connection = apsw.Connection(str(path))
    for pragma in ("journal_mode = WAL", "synchronous = OFF", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("CREATE TABLE lines (row INTEGER PRIMARY KEY, text TEXT, terms BLOB)")
    return connection


def fts5_query(connection: apsw.Connection, lines: int, detail: str) -> dict[str, float]:
    """Fill a table, and ask it."""
    connection.execute(FTS5.format(detail=detail))
    with connection:
        connection.executemany(
            "INSERT INTO found (rowid, terms) VALUES (?, ?)",
            ((n, scoped(terms(text))) for n, text in enumerate(MadeUpText(1).lines(lines), start=1)),
        )
    asked = [" OR ".join(f'"{word}"' for word in scoped(one).split()) for one in MadeUpText(2).queries(QUERIES)]
    spent = [timed(lambda one=one: connection.execute(ASK, (one, BEST)).fetchall()) for one in asked]
    return percentiles(spent[10:], f"fts5_{detail}_query")


def fts5_added(connection: apsw.Connection, detail: str) -> dict[str, float]:
    """Store lines, each in a transaction of its own, with their entries."""
    spent = []
    for text in MadeUpText(3).lines(ADDED_LINES):
        start = time.perf_counter()
        with connection:
            connection.execute("INSERT INTO lines (text) VALUES (?)", (text,))
            row = connection.last_insert_rowid() + 10**7
            connection.execute("INSERT INTO found (rowid, terms) VALUES (?, ?)", (row, scoped(terms(text))))
        spent.append(time.perf_counter() - start)
    return percentiles(spent, f"fts5_{detail}_add")


def hashed_added(connection: apsw.Connection) -> dict[str, float]:
    """The same, with the line's hashed terms in its row."""
    spent = []
    for text in MadeUpText(3).lines(ADDED_LINES):
        start = time.perf_counter()
        with connection:
            connection.execute("INSERT INTO lines (text, terms) VALUES (?, ?)", (text, pack(terms(text))))
        spent.append(time.perf_counter() - start)
    return percentiles(spent, "hashed_add")


def hashed_query(path: Path, lines: int) -> dict[str, float]:
    """Fill a store, and ask it as a search does: first the columns are brought up to date with the file."""
    store = SQLiteStore(path, count_message)
    texts = MadeUpText(1).lines(lines)
    while batch := list(islice(texts, 1000)):
        store.append(KEY, messages_of(batch))
    first = timed(lambda: store.search(SCOPE, None, ["ba"], BEST, 0))
    asked = MadeUpText(2).queries(QUERIES)
    spent = [timed(lambda one=one: store.search(SCOPE, None, one, BEST, 0)) for one in asked]
    store.close()
    return percentiles(spent[10:], "hashed_query") | {"hashed_first_query_s": first}


def random_words(seed: int) -> list[str]:
    """Words that stand nowhere else."""
    chance = random.Random(seed)
    return ["".join(chance.choices(string.ascii_lowercase, k=14)) for _ in range(DELETED_WORDS)]


def readable(connection: apsw.Connection, path: Path, gone: Sequence[str]) -> int:
    """How many deleted words the file still has; their first letters may be shared with the word before."""
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    file = path.read_bytes()
    return sum(word[4:].encode() in file for word in gone)


def fts5_residue(path: Path, detail: str, is_secure: bool) -> int:
    """Delete every other line from FTS5, and look for the word that only it had."""
    connection = opened(path)
    connection.execute(FTS5.format(detail=detail))
    if is_secure:
        connection.execute("INSERT INTO found (found, rank) VALUES ('secure-delete', 1)")
    gone = random_words(4)
    said = [f"{text} {word}" for text, word in zip(MadeUpText(5).lines(DELETED_WORDS), gone, strict=True)]
    others = MadeUpText(6).lines(DELETED_WORDS)
    for row, (text, other) in enumerate(zip(said, others, strict=True)):  # side by side, over many pages
        connection.execute(
            "INSERT INTO found (rowid, terms) VALUES (?, ?), (?, ?)", (2 * row, text, 2 * row + 1, other)
        )
    for row, text in enumerate(said):
        connection.execute("INSERT INTO found (found, rowid, terms) VALUES ('delete', ?, ?)", (2 * row, text))
    return readable(connection, path, gone)


def table_residue(path: Path) -> int:
    """The same with an ordinary table and index, `PRAGMA secure_delete = ON`: why the store writes its file anew."""
    connection = opened(path)
    connection.execute("CREATE TABLE ids (row INTEGER PRIMARY KEY, thread INTEGER, id TEXT, UNIQUE (thread, id))")
    gone = random_words(1)
    for word, other in zip(gone, random_words(2), strict=True):
        connection.execute("INSERT INTO ids (thread, id) VALUES (1, ?), (1, ?)", (word, other))
    for word in gone:
        connection.execute("DELETE FROM ids WHERE thread = 1 AND id = ?", (word,))
    return readable(connection, path, gone)


def residues() -> dict[str, float]:
    """Deleted words of a thousand that can still be read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "readable_of_1000_fts5_none": fts5_residue(folder / "1.db", "none", is_secure=True),
            "readable_of_1000_fts5_full": fts5_residue(folder / "2.db", "full", is_secure=True),
            "readable_of_1000_fts5_without_its_option": fts5_residue(folder / "3.db", "full", is_secure=False),
            "readable_of_1000_table_and_index": table_residue(folder / "4.db"),
        }


def measure(lines: int) -> dict[str, float]:
    """All figures at a size, by name, with their units."""
    figures: dict[str, float] = {"lines": lines}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures |= hashed_query(folder / "hashed.db", lines)
        figures |= hashed_added(opened(folder / "added.db"))
        for detail in ("none", "full"):
            connection = opened(folder / f"{detail}.db")
            figures |= fts5_query(connection, lines, detail)
            pages = "SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'found%'"
            try:
                figures[f"fts5_{detail}_bytes_per_line"] = connection.execute(pages).get / lines
            except apsw.SQLError:  # a SQLite without dbstat: nearly all of the file
                figures[f"fts5_{detail}_bytes_per_line"] = (folder / f"{detail}.db").stat().st_size / lines
            figures |= fts5_added(connection, detail)
            connection.close()
        packed = [len(pack(terms(text))) for text in MadeUpText(1).lines(1000)]
        figures["hashed_bytes_per_line"] = float(np.mean(packed))
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=int, nargs="+", default=[10_000, 60_000], help="how many, for each run")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    runs = [measure(lines) for lines in arguments.lines]
    kept = {"load_average": load, **residues()}
    if arguments.json:
        print(json.dumps({"runs": runs, **kept}, indent=2))
        return
    for figures in (*runs, kept):
        for name, value in figures.items():
            print(f"{name:44} {value:10.4g}")
        print()


if __name__ == "__main__":
    main()

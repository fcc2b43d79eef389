"""Brings a file to the schema that this version reads: ordered steps, applied in one transaction.

Step n (from 0) makes version n + 1 out of version n; a new file goes through all of them. A step that was
released is never edited. A step may call `fingerprint(payload)`. Knows nothing else about what the tables mean.
"""

import json
from importlib.resources import files

import apsw

from backscroll.errors import NotAStoreError
from backscroll.fingerprint import fingerprint

APPLICATION_ID = 0x426B7363  # "Bksc", in the file's header: `file chat.db` and `PRAGMA application_id` show it
STEPS = ("schema.sql", "schema-2.sql", "schema-3.sql", "schema-4.sql", "schema-5.sql")
VERSION = len(STEPS)


def identify(connection: apsw.Connection, path: str) -> int:
    """The file's schema version; 0 for a file that is still empty.

    Raises: NotAStoreError for a database of another program or of a newer version.
    """
    application = connection.pragma("application_id")
    version = int(connection.pragma("user_version"))
    has_tables = connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_schema)").fetchone() == (1,)
    if application != APPLICATION_ID and (application or version or has_tables):
        raise NotAStoreError(f"{path} is a database of another program: name another file")
    if version > VERSION:
        raise NotAStoreError(
            f"{path} was written by a newer Backscroll (schema {version}, this one reads up to {VERSION}): "
            "upgrade Backscroll"
        )
    return version


def migrate(connection: apsw.Connection, path: str) -> None:
    """Apply the missing steps, all or none; called inside a write transaction."""
    connection.create_scalar_function("fingerprint", _fingerprint, 1)
    for step in STEPS[identify(connection, path) :]:
        connection.execute(files(__package__).joinpath(step).read_text(encoding="utf-8")).fetchall()
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
    connection.execute(f"PRAGMA user_version = {VERSION}").fetchall()


def _fingerprint(*payload: object) -> int:
    return fingerprint(json.loads(str(payload[0])))

-- One file, readable by any SQLite. What a line says is in `lines`; everything marked "derived" can be
-- rebuilt from there. Numbers that were given out (rows, positions, users, threads) are never given again.

CREATE TABLE users (
  user_id     INTEGER PRIMARY KEY AUTOINCREMENT,
  name        TEXT    NOT NULL UNIQUE,
  deletions   INTEGER NOT NULL DEFAULT 0,  -- grows when lines or vectors went: columns in RAM are read again
  forks       INTEGER NOT NULL DEFAULT 0,  -- grows when other lines became the current ones
  next_vector INTEGER NOT NULL DEFAULT 0   -- number of the user's next vector; new ones are found by it
) STRICT;

-- A thread, or a branch of one. A branch's path is its parent's path below fork_position, then its own lines.
CREATE TABLE threads (
  thread_id     INTEGER PRIMARY KEY AUTOINCREMENT,
  user_id       INTEGER NOT NULL REFERENCES users ON DELETE CASCADE,
  name          TEXT    NOT NULL,
  family_id     INTEGER REFERENCES threads ON DELETE CASCADE,  -- the root thread; its own thread_id there
  parent_id     INTEGER,             -- the thread that a branch left; NULL for a root
  fork_position INTEGER,             -- where it left; NULL for a root
  head_id       INTEGER,             -- root only: the thread of the family that the root's name stands for
  next_position INTEGER NOT NULL DEFAULT 0,
  next_offset   INTEGER NOT NULL DEFAULT 0,  -- tokens of all the lines that were stored on its path
  UNIQUE (user_id, name)
) STRICT;
CREATE INDEX threads_of_family ON threads (family_id);

CREATE TABLE lines (
  row        INTEGER PRIMARY KEY AUTOINCREMENT,
  user_id    INTEGER NOT NULL,       -- the thread's
  thread_id  INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
  position   INTEGER NOT NULL,       -- from 0; a deleted line leaves a hole
  tokens     INTEGER NOT NULL,       -- derived: as a message of its own, o200k_base
  offset     INTEGER NOT NULL,       -- derived: tokens of the lines in front of it when it was stored
  length     INTEGER NOT NULL,       -- derived: how many terms, repeated ones included
  passages   INTEGER,                -- derived: how many vectors; NULL until it is embedded
  pinned     INTEGER NOT NULL DEFAULT 0,
  role       TEXT    NOT NULL,
  speaker    TEXT,                   -- the message's name; NULL where the role speaks
  created_at TEXT    NOT NULL,       -- ISO 8601 with its zone
  id         TEXT    NOT NULL,       -- the caller's, or made by the store
  terms      BLOB    NOT NULL,       -- derived: 9 bytes a term: 8 of its hash (little-endian), 1 how often
  payload    TEXT    NOT NULL,       -- JSON: the message as it was given, less id, created_at and metadata
  text       TEXT,                   -- what can be searched; NULL where it is payload's content
  metadata   TEXT,                   -- JSON; NULL where there is none
  UNIQUE (thread_id, position),
  UNIQUE (thread_id, id)
) STRICT;
CREATE INDEX lines_of_user ON lines (user_id);
CREATE INDEX lines_to_embed ON lines (user_id) WHERE passages IS NULL;

-- Derived. A unit vector v is kept as int8, round(v / max|v| * 127), and is made unit again when it is read.
CREATE TABLE vectors (
  user_id INTEGER NOT NULL,
  number  INTEGER NOT NULL,          -- grows with every vector of the user
  row     INTEGER NOT NULL REFERENCES lines ON DELETE CASCADE,
  passage INTEGER NOT NULL,          -- from 0 in the line
  start   INTEGER NOT NULL,          -- characters of the line's text that the vector stands for:
  stop    INTEGER NOT NULL,          -- text[start:stop]
  vector  BLOB    NOT NULL,
  PRIMARY KEY (user_id, number)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX vectors_of_line ON vectors (row, passage);

-- Derived.
CREATE TABLE summaries (
  thread_id  INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,  -- the thread that owns the last line
  first      INTEGER NOT NULL,       -- positions, both included
  last       INTEGER NOT NULL,
  method     TEXT    NOT NULL,
  sentences  TEXT    NOT NULL,       -- JSON: list of texts
  created_at TEXT    NOT NULL,
  PRIMARY KEY (thread_id, first, last, method)
) STRICT, WITHOUT ROWID;

-- Derived: the relevance buffer, what was recalled when a thread was asked at a position.
CREATE TABLE blocks (
  thread_id      INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,  -- the thread that was asked
  asked_at       INTEGER NOT NULL,
  number         INTEGER NOT NULL,   -- order in what was recalled then
  line_thread_id INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,  -- the thread that owns the last line
  first          INTEGER NOT NULL,
  last           INTEGER NOT NULL,
  score          REAL    NOT NULL,
  similarity     REAL    NOT NULL,
  PRIMARY KEY (thread_id, asked_at, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX blocks_of_lines ON blocks (line_thread_id);

CREATE TABLE settings (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

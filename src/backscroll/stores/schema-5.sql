-- In parts of 8,192 rows: fingerprints are in no order, and in one index of all lines nearly every line that is stored
-- writes a page of its own (docs/LOG.md). A part has 40 pages, and one look-up goes into each of them.
DROP INDEX lines_by_fingerprint;
CREATE INDEX lines_by_fingerprint ON lines (user_id, row >> 13, fingerprint);

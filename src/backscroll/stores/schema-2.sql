-- When a language model made a summary; NULL where none did. The claim of one that is being made has no sentences,
-- and here when it was claimed.
ALTER TABLE summaries ADD COLUMN made_at TEXT;

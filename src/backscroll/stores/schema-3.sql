-- Derived: what the line says as 64 bits of a hash (backscroll.fingerprint), so that a history that a client resends is
-- found by one of its lines.
ALTER TABLE lines ADD COLUMN fingerprint INTEGER;
UPDATE lines SET fingerprint = fingerprint(payload);
CREATE INDEX lines_by_fingerprint ON lines (user_id, fingerprint);

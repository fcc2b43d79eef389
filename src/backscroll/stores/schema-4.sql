-- Derived: a fingerprint leaves out what a model thought in front of its reply.
UPDATE lines SET fingerprint = fingerprint(payload) WHERE role = 'assistant' AND payload LIKE '%<think%';

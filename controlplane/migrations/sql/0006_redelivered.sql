-- Only redeliveries stand in it, so it costs the ingest of anything else nothing, and the wall finds
-- the last minutes' by reading just those. On a large installation build it beforehand, one
-- partition at a time (CREATE INDEX CONCURRENTLY): here it locks out writes while it is built.
CREATE INDEX attempt_redelivered ON attempt (occurred_at) INCLUDE (tenant)
    WHERE role = 'redelivery';

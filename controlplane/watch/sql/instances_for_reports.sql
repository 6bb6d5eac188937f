-- The rows are held until the reports are committed: reports of one boot are told apart by seq.
-- In the order of their ids, so that two processes cannot wait for each other.
SELECT id, status_seq, items, received_generation, applied_generation, applied_hash, epoch,
       config_source, checkpointed_generation, refused_generation, highest_seq, goodbye_at IS NOT NULL AS has_left
FROM instance WHERE id = ANY(%(instances)s) ORDER BY id FOR NO KEY UPDATE

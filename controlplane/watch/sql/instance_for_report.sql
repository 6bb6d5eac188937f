-- The row is held until the report is committed: reports of one boot are told apart by seq.
SELECT status_seq, items, received_generation, applied_generation, applied_hash, epoch,
       config_source, refused_generation, goodbye_at IS NOT NULL AS has_left
FROM instance WHERE id = %(instance)s FOR NO KEY UPDATE

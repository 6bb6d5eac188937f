-- Numbers of an instance's batches that have not come although later ones have: one row for each
-- hole, kept by ingest (receipts.move_on). ``since``: when the batch after it came.
CREATE TABLE batch_gap (
    instance_id  bigint      NOT NULL REFERENCES instance ON DELETE CASCADE,
    first_seq    bigint      NOT NULL,
    last_seq     bigint      NOT NULL CHECK (last_seq >= first_seq),
    since        timestamptz NOT NULL,
    PRIMARY KEY (instance_id, first_seq)
);
INSERT INTO batch_gap (instance_id, first_seq, last_seq, since)
SELECT instance_id, before + 1, seq - 1, received_at
FROM (
    SELECT r.instance_id, r.seq, r.received_at,
        COALESCE(lag(r.seq) OVER (PARTITION BY r.instance_id ORDER BY r.seq), i.contiguous_seq)
            AS before
    FROM receipt r JOIN instance i ON i.id = r.instance_id AND i.gateway_id = r.gateway_id
    WHERE i.highest_seq > i.contiguous_seq AND r.seq > i.contiguous_seq
) AS numbered
WHERE seq > before + 1;

-- A batch may overtake another, or be refused and sent again: a gateway's longest wait between two
-- tries is 30 s. What has not come after four of those is lost.
CREATE VIEW missing_batches AS
SELECT instance_id,
    COALESCE(sum(last_seq - first_seq + 1)
        FILTER (WHERE since <= statement_timestamp() - interval '2 minutes'), 0)::bigint AS lost,
    COALESCE(sum(last_seq - first_seq + 1)
        FILTER (WHERE since > statement_timestamp() - interval '2 minutes'), 0)::bigint AS awaited
FROM batch_gap GROUP BY instance_id;

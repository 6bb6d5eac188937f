-- What is missing of each instance's telemetry: batches that never came although later ones did
-- (those after the first hole, less those that came), events that could not be read, and what the
-- gateway says that it had to drop. Only instances that lack something.
SELECT g.name, i.slot, i.boot_id, i.last_seen_at, lost.batches, lost.unread, lost.dropped
FROM instance i
JOIN gateway g ON g.id = i.gateway_id
CROSS JOIN LATERAL (
    SELECT
        i.highest_seq - i.contiguous_seq - (
            SELECT count(*) FROM receipt r
            WHERE r.gateway_id = i.gateway_id AND r.instance_id = i.id AND r.seq > i.contiguous_seq
        ) AS batches,
        (SELECT count(*) FROM dead_letter d
         WHERE d.gateway_id = i.gateway_id AND d.instance_id = i.id) AS unread,
        COALESCE((i.spool ->> 'dropped')::bigint, 0) AS dropped
) AS lost
WHERE i.last_seen_at >= %(since)s AND (lost.batches > 0 OR lost.unread > 0 OR lost.dropped > 0)
ORDER BY g.name, i.slot, i.first_seen_at

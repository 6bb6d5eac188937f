-- What is missing of each instance's telemetry, or came as it should not: batches that did not come
-- although later ones did, lost or still awaited; events that could not be read, what the gateway
-- says that it had to drop; events that came over an hour late, or were ahead of our clock; and
-- whether it still speaks although another has its slot. Only instances of which there is something
-- to say.
WITH clocks AS (
    SELECT instance_id, sum(late) AS late, sum(skewed) AS skewed
    FROM receipt
    WHERE received_at >= %(since)s AND (late > 0 OR skewed > 0)
    GROUP BY instance_id
), lately AS (
    -- Old words of a boot that is long dead, such as a spool that came days late, lack things too.
    SELECT instance_id FROM clocks
    UNION SELECT instance_id FROM batch_gap WHERE since >= %(since)s
    UNION SELECT instance_id FROM dead_letter WHERE received_at >= %(since)s
)
SELECT g.name, i.slot, i.boot_id, i.last_seen_at, COALESCE(missing.lost, 0) AS lost,
    COALESCE(missing.awaited, 0) AS awaited, lost.unread, lost.dropped,
    COALESCE(i.spool -> 'dropped_by_kind', '{}'),
    COALESCE(clocks.late, 0), COALESCE(clocks.skewed, 0), shared.slot
FROM instance i
JOIN gateway g ON g.id = i.gateway_id
LEFT JOIN clocks ON clocks.instance_id = i.id
LEFT JOIN missing_batches missing ON missing.instance_id = i.id
CROSS JOIN LATERAL (
    SELECT
        (SELECT count(*) FROM dead_letter d
         WHERE d.gateway_id = i.gateway_id AND d.instance_id = i.id) AS unread,
        COALESCE((i.spool ->> 'dropped')::bigint, 0) AS dropped
) AS lost
CROSS JOIN LATERAL (
    SELECT COALESCE(i.last_seen_at > i.replaced_at + interval '30 seconds', false) AS slot
) AS shared
WHERE (i.last_seen_at >= %(since)s OR i.id IN (SELECT instance_id FROM lately))
  AND (missing.instance_id IS NOT NULL OR lost.unread > 0 OR lost.dropped > 0 OR clocks.late > 0
       OR clocks.skewed > 0 OR shared.slot)
ORDER BY g.name, i.slot, i.first_seen_at

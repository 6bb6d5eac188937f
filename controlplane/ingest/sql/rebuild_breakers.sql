-- Every breaker with a transition in [start, end), from the highest one, by the rules of the fold.
-- Where a status report has told of a higher number than any transition that has come, or speaks of
-- the same number and so knows more of it, the report stands; what only reports know (override of
-- the moment, ramp, keys) is left as it is, and a breaker that a report took off stays off.
WITH newest AS (
    SELECT DISTINCT ON (t.gateway_id, t.instance_id, t.circuit_id) t.*
    FROM transition t
    -- Events of a gateway that was deleted since stay until their day is dropped.
    JOIN instance i ON i.id = t.instance_id
    -- What stands for many circuits has no one breaker.
    JOIN circuit c ON c.id = t.circuit_id AND c.provider <> '(other)'
    WHERE t.occurred_at >= %(start)s AND t.occurred_at < %(end)s
      AND NOT EXISTS (
          SELECT FROM circuit_gone g
          WHERE g.instance_id = t.instance_id AND g.circuit_id = t.circuit_id
            AND g.at > t.occurred_at)
    ORDER BY t.gateway_id, t.instance_id, t.circuit_id,
             t.number DESC, t.occurred_at DESC, t.id DESC
)
INSERT INTO circuit_state AS s (
    gateway_id, instance_id, circuit_id, number, state, since, cause, mode, reported_at,
    next_probe_at, counters, override_uid, would_be, ramp_percent, stuck, keys_note)
SELECT gateway_id, instance_id, circuit_id, number, to_state, occurred_at, cause, mode,
    received_at, next_probe_at,
    jsonb_build_object('calls', calls, 'failures', failures, 'slow', slow,
                       'consecutive', consecutive),
    '', '', 100, cause = 'Stuck', ''
FROM newest
ON CONFLICT (gateway_id, instance_id, circuit_id) DO UPDATE SET
    number = EXCLUDED.number, counters = EXCLUDED.counters,
    (state, since, cause, mode, next_probe_at, stuck) = (
        SELECT w.state, w.since, w.cause, w.mode, w.next_probe_at, w.stuck
        FROM (VALUES
            (true, EXCLUDED.state, EXCLUDED.since, EXCLUDED.cause, EXCLUDED.mode,
             EXCLUDED.next_probe_at, EXCLUDED.stuck),
            (false, s.state, s.since, s.cause, s.mode, s.next_probe_at, s.stuck))
            AS w(anew, state, since, cause, mode, next_probe_at, stuck)
        JOIN instance i ON i.id = s.instance_id
        WHERE w.anew = (EXCLUDED.number > s.number OR i.status_seq = 0))
WHERE EXCLUDED.number >= s.number

-- Every breaker with a transition in [start, end), from the highest one. Where a status report has
-- told of a higher number than any transition that has come, the report stands; what only reports
-- know (mode and override of the moment, ramp, keys) is left as it is.
WITH newest AS (
    SELECT DISTINCT ON (t.gateway_id, t.instance_id, t.circuit_id) t.*
    FROM transition t
    -- Events of a gateway that was deleted since stay until their day is dropped.
    JOIN instance i ON i.id = t.instance_id
    -- What stands for many circuits has no one breaker.
    JOIN circuit c ON c.id = t.circuit_id AND c.provider <> '(other)'
    WHERE t.occurred_at >= %(start)s AND t.occurred_at < %(end)s
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
    number = EXCLUDED.number, state = EXCLUDED.state, since = EXCLUDED.since,
    cause = EXCLUDED.cause, next_probe_at = EXCLUDED.next_probe_at,
    counters = EXCLUDED.counters, stuck = EXCLUDED.stuck,
    mode = CASE WHEN EXCLUDED.number > s.number THEN EXCLUDED.mode ELSE s.mode END
WHERE EXCLUDED.number >= s.number

-- A circuit's newest transitions of the last day, with who reported them.
SELECT g.name, i.slot, t.occurred_at, t.from_state, t.to_state, t.cause, t.mode,
       t.calls, t.failures, t.consecutive, t.next_probe_at
FROM transition t
JOIN instance i ON i.id = t.instance_id
JOIN gateway g ON g.id = t.gateway_id
WHERE t.circuit_id = %(circuit_id)s
  AND t.occurred_at > statement_timestamp() - interval '24 hours'
ORDER BY t.occurred_at DESC, t.number DESC
LIMIT 100

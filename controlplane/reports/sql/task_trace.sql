-- All that is known of a task at one gateway and tenant, in order: attempts, refusals, ends. The
-- range is the task's own, so that only its days are looked into.
SELECT 'attempt' AS kind, a.occurred_at, a.id, a.request, c.provider, c.model, c.region,
    a.ordinal, a.role, a.verdict, a.reason, a.status, a.waited_ms, a.first_byte_ms, a.ended_ms,
    a.served, NULL::boolean AS success, NULL::boolean AS explicit, a.cost_gbp, a.cost_status
FROM attempt a JOIN circuit c ON c.id = a.circuit_id
WHERE a.gateway_id = %(gateway)s AND a.tenant = %(tenant)s AND a.task = %(task)s
  AND a.occurred_at >= %(start)s AND a.occurred_at < %(end)s
UNION ALL
SELECT 'refusal', r.occurred_at, r.id, r.request, c.provider, c.model, c.region,
    NULL, NULL, r.gate, r.detail, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL
FROM refusal r JOIN circuit c ON c.id = r.circuit_id
WHERE r.gateway_id = %(gateway)s AND r.tenant = %(tenant)s AND r.task = %(task)s
  AND r.occurred_at >= %(start)s AND r.occurred_at < %(end)s
UNION ALL
SELECT 'outcome', o.occurred_at, o.id, o.request, NULL, NULL, NULL,
    NULL, NULL, NULL, o.reason, NULL, o.waited_ms, NULL, o.latency_ms,
    NULL, o.success, o.explicit, NULL, NULL
FROM outcome o
WHERE o.gateway_id = %(gateway)s AND o.tenant = %(tenant)s AND o.task = %(task)s
  AND o.occurred_at >= %(start)s AND o.occurred_at < %(end)s
ORDER BY 2, 3

-- All that is known of one request at one gateway, in order; for a request without a task. Found by
-- the index of each day that is kept.
SELECT 'attempt' AS kind, a.occurred_at, a.id, a.request, c.provider, c.model, c.region,
    a.ordinal, a.role, a.verdict, a.reason, a.status, a.waited_ms, a.first_byte_ms, a.ended_ms,
    a.served, NULL::boolean AS success, NULL::boolean AS explicit, a.cost_gbp, a.cost_status
FROM attempt a JOIN circuit c ON c.id = a.circuit_id
WHERE a.gateway_id = %(gateway)s AND a.request = %(request)s
UNION ALL
SELECT 'refusal', r.occurred_at, r.id, r.request, c.provider, c.model, c.region,
    NULL, NULL, r.gate, r.detail, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL
FROM refusal r JOIN circuit c ON c.id = r.circuit_id
WHERE r.gateway_id = %(gateway)s AND r.request = %(request)s
UNION ALL
SELECT 'outcome', o.occurred_at, o.id, o.request, NULL, NULL, NULL,
    NULL, NULL, NULL, o.reason, NULL, o.waited_ms, NULL, o.latency_ms,
    NULL, o.success, o.explicit, NULL, NULL
FROM outcome o
WHERE o.gateway_id = %(gateway)s AND o.request = %(request)s
ORDER BY 2, 3
LIMIT 1000

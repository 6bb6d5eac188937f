-- A circuit's newest attempts that did not succeed, newest first.
SELECT a.occurred_at, a.id, a.request, a.gateway_id, a.tenant, a.route, a.role, a.verdict, a.reason,
    a.status, a.ended_ms, a.counts, a.cost_gbp
FROM attempt a
WHERE a.circuit_id = %(circuit)s AND a.occurred_at >= %(start)s AND a.occurred_at < %(end)s
  AND a.verdict <> 'success'
ORDER BY a.occurred_at DESC
LIMIT %(limit)s

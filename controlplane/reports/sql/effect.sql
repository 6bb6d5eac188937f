-- The running minute and the one before, by gateway and circuit: what a hand would stop now.
SELECT g.name, g.labels, c.provider, c.model, c.region,
       r.circuit_id, r.minute, r.attempts, r.firsts, r.retries, r.failed,
       r.refused_breaker, r.refused_override, r.refused_budget,
       r.cost_gbp, r.wasted_gbp, r.unpriced
FROM rollup_minute r
JOIN gateway g ON g.id = r.gateway_id
JOIN circuit c ON c.id = r.circuit_id
WHERE r.minute >= date_trunc('minute', %(at)s::timestamptz) - interval '1 minute'
  AND r.minute <= %(at)s

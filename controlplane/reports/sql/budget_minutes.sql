-- Minutes of the circuits that a budget is about, at the gateways that it is about: what was asked
-- for, what was spent, what it refused. Gateways and circuits: NULL for all.
SELECT minute, sum(firsts), sum(retries), sum(refused_budget)
FROM rollup_minute
WHERE minute >= %(start)s AND minute < %(end)s
  AND (%(circuits)s::bigint[] IS NULL OR circuit_id = ANY(%(circuits)s::bigint[]))
  AND (%(gateways)s::int[] IS NULL OR gateway_id = ANY(%(gateways)s::int[]))
GROUP BY minute
ORDER BY minute

-- The minutes of [start, end) in which a retry was asked for, by gateway and (by_circuit) circuit:
-- what the buckets of one level had to decide. Gateways and circuits: NULL for all.
SELECT gateway_id, CASE WHEN %(by_circuit)s THEN circuit_id END AS circuit, sum(attempts)::bigint,
    sum(firsts)::bigint, sum(retries)::bigint, sum(refused_budget)::bigint, sum(failed)::bigint,
    sum(cost_gbp)
FROM rollup_minute
WHERE minute >= %(start)s AND minute < %(end)s
  AND (%(circuits)s::bigint[] IS NULL OR circuit_id = ANY(%(circuits)s::bigint[]))
  AND (%(gateways)s::int[] IS NULL OR gateway_id = ANY(%(gateways)s::int[]))
GROUP BY minute, gateway_id, circuit
HAVING sum(retries) > 0 OR sum(refused_budget) > 0

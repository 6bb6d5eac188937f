-- Calls that ObserveOnly alone let through, by circuit: the last 15 whole minutes and the running one.
SELECT c.provider, c.model, c.region, sum(r.would_refuse)
FROM rollup_minute r
JOIN circuit c ON c.id = r.circuit_id
WHERE r.minute >= date_trunc('minute', %(at)s::timestamptz) - interval '15 minutes'
  AND r.minute <= %(at)s
  AND r.would_refuse > 0
GROUP BY c.provider, c.model, c.region

-- The latency of attempts that ended in the running minute and the one before, as bins
-- (domain/histogram), on exactly these circuits and gateways (NULL: every one).
SELECT COALESCE(array_agg(bin), '{}')
FROM rollup_minute_part AS p CROSS JOIN LATERAL unnest(p.latency) AS bin
WHERE p.minute >= date_trunc('minute', %(at)s::timestamptz) - interval '1 minute'
  AND p.minute <= %(at)s
  AND p.circuit_id = ANY(%(circuits)s)
  AND (%(gateways)s::int[] IS NULL OR p.gateway_id = ANY(%(gateways)s))

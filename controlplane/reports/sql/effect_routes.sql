-- Attempts of the last minute by route, on exactly these circuits and gateways (NULL: every one).
SELECT route, count(*), count(*) FILTER (WHERE counts)
FROM attempt
WHERE occurred_at > %(at)s::timestamptz - interval '1 minute' AND occurred_at <= %(at)s
  AND circuit_id = ANY(%(circuits)s)
  AND (%(gateways)s::int[] IS NULL OR gateway_id = ANY(%(gateways)s))
GROUP BY route
ORDER BY count(*) DESC, route

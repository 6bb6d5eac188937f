-- Every change into and out of Open of the last day: what the incidents of the day are made of.
-- An instance that went away takes its open breakers with it, or its incident would never end.
WITH opening AS (
    SELECT t.instance_id, t.circuit_id, t.occurred_at, t.number, t.from_state, t.to_state
    FROM transition t
    WHERE t.occurred_at > %(at)s::timestamptz - interval '1 day'
      AND t.occurred_at <= %(at)s
      AND t.mode <> 'ObserveOnly'
      AND (t.to_state = 'Open' OR t.from_state = 'Open')
    ORDER BY t.occurred_at
    LIMIT 50000
), gone AS (
    SELECT i.id, coalesce(i.goodbye_at, i.replaced_at, i.last_seen_at) AS at
    FROM instance i
    WHERE i.id IN (SELECT instance_id FROM opening)
      AND (i.goodbye_at IS NOT NULL OR i.replaced_at IS NOT NULL
           OR i.last_seen_at < %(at)s::timestamptz - interval '5 minutes')
)
SELECT e.instance_id, e.circuit_id, e.at, e.from_state, e.to_state, c.provider
FROM (
    SELECT instance_id, circuit_id, occurred_at AS at, number, from_state, to_state FROM opening
    UNION ALL
    SELECT DISTINCT o.instance_id, o.circuit_id, g.at, 9223372036854775807, 'Open', 'Gone'
    FROM opening o
    JOIN gone g ON g.id = o.instance_id
) AS e
JOIN circuit c ON c.id = e.circuit_id
ORDER BY e.at, e.number

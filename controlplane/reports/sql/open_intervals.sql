-- When a circuit's breakers were Open or HalfOpen within [start, end), one row for each instance
-- and state. An interval ends with the next transition; "certain" is false when transitions between the
-- two are missing, so that what lies between is not known. Without a next one it ends with the
-- instance's last word: "silent" says that it has said nothing since, up to the end of the range.
WITH within AS (
    SELECT instance_id, number, occurred_at, to_state, cause
    FROM transition
    WHERE circuit_id = %(circuit)s AND occurred_at >= %(start)s AND occurred_at < %(end)s
), heard AS (
    SELECT id, gateway_id, slot, LEAST(last_seen_at, replaced_at, goodbye_at) AS last_word
    FROM instance
    WHERE first_seen_at < %(end)s AND last_seen_at >= %(start)s
), before AS (
    SELECT h.id AS instance_id, t.number, t.occurred_at, t.to_state, t.cause
    FROM heard h
    CROSS JOIN LATERAL (
        SELECT number, occurred_at, to_state, cause FROM transition
        WHERE circuit_id = %(circuit)s AND instance_id = h.id
          AND occurred_at >= %(since)s AND occurred_at < %(start)s
        ORDER BY occurred_at DESC, number DESC LIMIT 1
    ) AS t
), steps AS (
    SELECT *,
        lead(number) OVER next AS next_number,
        lead(occurred_at) OVER next AS next_at
    FROM (SELECT * FROM before UNION ALL SELECT * FROM within) AS known
    WINDOW next AS (PARTITION BY instance_id ORDER BY number)
)
SELECT g.name, h.slot, s.to_state, s.cause,
    GREATEST(s.occurred_at, %(start)s) AS since,
    LEAST(COALESCE(s.next_at, h.last_word), %(end)s) AS until,
    s.next_number IS NULL OR s.next_number = s.number + 1 AS certain,
    s.next_at IS NULL AND h.last_word < %(end)s AS silent
FROM steps s
JOIN heard h ON h.id = s.instance_id
JOIN gateway g ON g.id = h.gateway_id
WHERE s.to_state <> 'Closed'
  AND LEAST(COALESCE(s.next_at, h.last_word), %(end)s) > %(start)s
ORDER BY since, g.name, h.slot

-- What a person did on a gateway's host: each is new once and ends once, whichever worker says it.
INSERT INTO local_override AS o (
    gateway_id, uid, host, mode, provider, model, region, reason, made_by, created_at, expires_at,
    first_heard_at, ended_at, end_cause)
SELECT %(gateway)s, uid, %(host)s, mode, COALESCE(provider, ''), COALESCE(model, ''),
       COALESCE(region, ''), reason, made_by, created_at, expires_at, %(now)s, ended_at,
       COALESCE(end_cause, '')
FROM jsonb_to_recordset(%(items)s::jsonb) AS r(
    uid text, mode text, provider text, model text, region text, reason text, made_by text,
    created_at timestamptz, expires_at timestamptz, ended_at timestamptz, end_cause text)
ORDER BY uid
ON CONFLICT (gateway_id, uid) DO UPDATE SET
    ended_at = EXCLUDED.ended_at, end_cause = EXCLUDED.end_cause
WHERE o.ended_at IS NULL AND EXCLUDED.ended_at IS NOT NULL
RETURNING uid, xmax = 0 AS is_new, ended_at IS NOT NULL AS has_ended

-- A verdict that is said again keeps the time at which it was first heard.
INSERT INTO delivery AS d (
    gateway_id, instance_id, kind, name, uid, generation, delivered_at, acknowledged_at,
    verdict, reason, message, field_path, applied_at, first_effect_at)
SELECT gateway_id, instance_id, kind, name, uid, generation, %(now)s,
       CASE WHEN verdict = '' THEN NULL ELSE %(now)s END,
       verdict, reason, message, field_path, applied_at, first_effect_at
FROM jsonb_to_recordset(%(rows)s::jsonb) AS r(
    gateway_id bigint, instance_id bigint, kind text, name text, uid text, generation bigint,
    verdict text, reason text, message text, field_path text, applied_at timestamptz,
    first_effect_at timestamptz)
ORDER BY gateway_id, instance_id, uid, generation
ON CONFLICT (gateway_id, instance_id, uid, generation) DO UPDATE SET
    acknowledged_at = CASE WHEN d.verdict = EXCLUDED.verdict THEN d.acknowledged_at
                           ELSE EXCLUDED.acknowledged_at END,
    verdict = EXCLUDED.verdict, reason = EXCLUDED.reason, message = EXCLUDED.message,
    field_path = EXCLUDED.field_path, applied_at = EXCLUDED.applied_at,
    first_effect_at = COALESCE(d.first_effect_at, EXCLUDED.first_effect_at)
WHERE EXCLUDED.verdict <> ''

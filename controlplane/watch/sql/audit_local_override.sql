-- The audit of what the control plane was not asked for: who is the user that the host named.
INSERT INTO audit_entry (at, actor, actor_kind, action, object_kind, object_name, reason, after,
                         address, request_id)
SELECT %(now)s, left(o.made_by || ' on ' || o.host, 200), 'host', %(action)s, 'LocalOverride',
       g.name || '/' || o.uid, o.reason,
       to_jsonb(o) - 'id' - 'gateway_id' || jsonb_build_object('gateway', g.name),
       left(o.host, 64), ''
FROM local_override o JOIN gateway g ON g.id = o.gateway_id
WHERE o.gateway_id = %(gateway)s AND o.uid = %(uid)s

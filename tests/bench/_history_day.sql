-- One day of a fleet's events, written where nothing has to be kept in order yet: into tables
-- without an index, that are attached afterwards. Measured: into the attached ones it is half of
-- the work (five indexes a row), and as much WAL again.
-- Places by Zipf: the logarithm of an even draw falls on k with about 1/k. Identifiers are made
-- of the row's number, so that an end finds its attempt's request: UUIDv7, as gateways mint them.
CREATE TEMP TABLE drawn AS
SELECT g, at, 1 + g %% %(gateways)s AS gateway, kind, good,
    least(%(circuits)s, floor(exp(random() * ln(%(circuits)s + 1.0::float8)))::int) AS circuit,
    CASE WHEN task IS NULL
        THEN 'tenant-' || lpad((floor(exp(random() * ln(51::float8)))::int - 1)::text, 2, '0')
        ELSE 'tenant-00' END AS tenant,
    'route-' || (floor(exp(random() * ln(7::float8)))::int - 1) AS route, task,
    exp(7.5 + 0.6 * sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()))::int AS ms,
    (50 + random() * 3950)::int AS input, (10 + random() * 890)::int AS output,
    ((extract(epoch FROM %(start)s::timestamptz)::bigint * 1000 + us / 1000) << 16) | 28672 AS stamp
FROM (
    SELECT g, us, %(start)s::timestamptz + us * interval '1 microsecond' AS at,
        random() AS kind, random() < 0.95 AS good,
        CASE WHEN (g / %(gateways)s) %% 100 < 10 THEN
            'tenant-00/task-' || %(day)s || '-' || g %% %(gateways)s || '-' || g / %(gateways)s / 100
        END AS task
    FROM generate_series(0::bigint, %(events)s::bigint - 1) AS g,
        LATERAL (SELECT g * 86400000000 / %(events)s AS us) AS since
) AS numbered;

CREATE FUNCTION pg_temp.minted(stamp bigint, g bigint, salt bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE RETURN encode(
    int8send(stamp | (hashint8extended(g, salt) & 4095))
    || int8send((-9223372036854775808) | ((hashint8extended(g, salt + 1) >> 2) & 4611686018427387903)),
    'hex')::uuid;

CREATE TABLE attempt_{day} (LIKE attempt INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
INSERT INTO attempt_{day} (gateway_id, instance_id, circuit_id, id, occurred_at, received_at,
    request, task, ordinal, role, rerouted, key, tenant, route, served_model, status, verdict,
    reason, counts, first_byte_ms, ended_ms, waited_ms, input_tokens, cached_tokens, output_tokens,
    tokens_estimated, service_tier, billing, served, generation, cost_native, currency, cost_gbp,
    cost_status, price_id, fx_id)
SELECT gateway, gateway, circuit, pg_temp.minted(stamp, g, %(salt)s), at, at + interval '1 second',
    pg_temp.minted(stamp, g, %(salt)s + 2), task, 1,
    CASE WHEN random() < 0.95 THEN 'first' ELSE 'retry' END, false, 'key-1', tenant, route, 'model',
    CASE WHEN good THEN 200 ELSE 503 END, CASE WHEN good THEN 'success' ELSE 'retryable' END,
    CASE WHEN good THEN '' ELSE 'overloaded' END, NOT good, ms / 3, ms, 0, input, 0, output,
    false, '', CASE WHEN good THEN 'billed' ELSE 'not_billed' END, good, 12, cost, 'USD',
    cost * 0.7512, CASE WHEN good THEN 'priced' ELSE 'not_billed' END, 1, 1
FROM (
    SELECT *, CASE WHEN good THEN input * 0.0000025 + output * 0.00001 ELSE 0 END AS cost
    FROM drawn WHERE kind >= 0.0152
) AS sent;

CREATE TABLE outcome_{day} (LIKE outcome INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
INSERT INTO outcome_{day} (gateway_id, instance_id, id, occurred_at, received_at, request, task,
    tenant, route, success, explicit, reason, started_at, ended_at, latency_ms, waited_ms)
SELECT gateway, gateway, pg_temp.minted(stamp, g, %(salt)s + 4), at + interval '1 millisecond',
    at + interval '1 second', pg_temp.minted(stamp, g, %(salt)s + 2), task, tenant, route, good,
    false, '', at, at, ms, 0
FROM drawn WHERE kind >= 0.0152 AND kind < 0.0304 AND at < %(start)s + interval '23:59:59.9';

CREATE TABLE transition_{day} (LIKE transition INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
INSERT INTO transition_{day} (gateway_id, instance_id, circuit_id, id, occurred_at, received_at,
    number, from_state, to_state, cause, mode, calls, failures, slow, consecutive, generation)
SELECT gateway, gateway, circuit, pg_temp.minted(stamp, g, %(salt)s + 6), at,
    at + interval '1 second', %(number)s + g, CASE WHEN good THEN 'Open' ELSE 'Closed' END,
    CASE WHEN good THEN 'Closed' ELSE 'Open' END, 'ConsecutiveFailures', 'Auto', 0, 0, 0, 0, 12
FROM drawn WHERE kind < 0.0152;

INSERT INTO task (gateway_id, tenant, task, first_started_at, first_request, route, last_ended_at,
    implicit_at, implicit_id, implicit_success)
SELECT gateway, tenant, task, min(at), gen_random_uuid(), 'route-0', max(at), max(at),
    gen_random_uuid(), bool_or(good)
FROM drawn WHERE task IS NOT NULL AND kind >= 0.0152 GROUP BY gateway, tenant, task;

DROP TABLE drawn;
DROP FUNCTION pg_temp.minted;
ALTER TABLE attempt ATTACH PARTITION attempt_{day} FOR VALUES FROM ('{from}') TO ('{to}');
ALTER TABLE outcome ATTACH PARTITION outcome_{day} FOR VALUES FROM ('{from}') TO ('{to}');
ALTER TABLE transition ATTACH PARTITION transition_{day} FOR VALUES FROM ('{from}') TO ('{to}');

-- Telemetry: append-only event tables by day, what is derived of them, and the guard of the audit.
-- Every unique key holds gateway_id, the column by which the tables could be distributed later.

CREATE TABLE receipt (
    gateway_id   int         NOT NULL,
    instance_id  bigint      NOT NULL,
    seq          bigint      NOT NULL,
    received_at  timestamptz NOT NULL,
    sent_at      timestamptz NOT NULL,
    stored       int         NOT NULL,
    duplicates   int         NOT NULL,
    late         int         NOT NULL, -- events older than an hour when they came
    skewed       int         NOT NULL, -- events more than five minutes ahead of our clock
    unread       jsonb       NOT NULL DEFAULT '[]',
    PRIMARY KEY (gateway_id, instance_id, seq)
);
CREATE INDEX receipt_by_age ON receipt USING brin (received_at);

CREATE TABLE dead_letter (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    gateway_id   int         NOT NULL,
    instance_id  bigint      NOT NULL,
    seq          bigint      NOT NULL,
    index        int         NOT NULL,
    received_at  timestamptz NOT NULL,
    reason       text        NOT NULL,
    body         bytea       NOT NULL
);
CREATE INDEX dead_letter_by_age ON dead_letter (received_at);
CREATE INDEX dead_letter_of_instance ON dead_letter (gateway_id, instance_id);

-- Which circuits a gateway's events have named: at most 500 (models/registry).
CREATE TABLE gateway_circuit (
    gateway_id   int    NOT NULL,
    circuit_id   bigint NOT NULL,
    PRIMARY KEY (gateway_id, circuit_id)
);

CREATE TABLE attempt (
    gateway_id        int         NOT NULL,
    instance_id       bigint      NOT NULL,
    circuit_id        bigint      NOT NULL,
    id                uuid        NOT NULL,
    occurred_at       timestamptz NOT NULL,
    received_at       timestamptz NOT NULL,
    request           uuid        NOT NULL,
    task              text,
    ordinal           smallint    NOT NULL,
    role              text        NOT NULL,
    rerouted          boolean     NOT NULL,
    key               text        NOT NULL,
    tenant            text        NOT NULL,
    route             text        NOT NULL,
    served_model      text,
    status            smallint,
    verdict           text        NOT NULL,
    reason            text        NOT NULL,
    counts            boolean     NOT NULL,
    retry_after_s     double precision,
    first_byte_ms     int,
    ended_ms          int,
    waited_ms         int         NOT NULL,
    input_tokens      bigint,
    cached_tokens     bigint,
    cache_write_tokens bigint,
    output_tokens     bigint,
    reasoning_tokens  bigint,
    tokens_estimated  boolean     NOT NULL,
    service_tier      text        NOT NULL,
    billing           text        NOT NULL,
    served            boolean     NOT NULL,
    generation        bigint      NOT NULL,
    cost_native       numeric,
    currency          text,
    cost_gbp          numeric,
    cost_status       text        NOT NULL,
    price_id          bigint, -- the newest of the price rows used
    fx_id             bigint,
    CONSTRAINT attempt_once UNIQUE (gateway_id, id, occurred_at),
    CONSTRAINT attempt_cost_status_known CHECK (cost_status IN
        ('priced', 'estimated', 'unpriced', 'not_billed', 'unknown', 'invalid_usage'))
) PARTITION BY RANGE (occurred_at);
CREATE INDEX attempt_of_circuit ON attempt (circuit_id, occurred_at);
CREATE INDEX attempt_by_time ON attempt USING brin (occurred_at);
-- A task's trace: attempts of one request or task.
CREATE INDEX attempt_of_request ON attempt (request);
CREATE INDEX attempt_of_task ON attempt (gateway_id, tenant, task) WHERE task IS NOT NULL;

CREATE TABLE refusal (
    gateway_id   int         NOT NULL,
    instance_id  bigint      NOT NULL,
    circuit_id   bigint      NOT NULL,
    id           uuid        NOT NULL,
    occurred_at  timestamptz NOT NULL,
    received_at  timestamptz NOT NULL,
    request      uuid        NOT NULL,
    task         text,
    key          text        NOT NULL,
    tenant       text        NOT NULL,
    route        text        NOT NULL,
    gate         text        NOT NULL,
    detail       text        NOT NULL,
    would_have   boolean     NOT NULL,
    generation   bigint      NOT NULL,
    CONSTRAINT refusal_once UNIQUE (gateway_id, id, occurred_at)
) PARTITION BY RANGE (occurred_at);
CREATE INDEX refusal_of_circuit ON refusal (circuit_id, occurred_at);
CREATE INDEX refusal_by_time ON refusal USING brin (occurred_at);
CREATE INDEX refusal_of_request ON refusal (request);
CREATE INDEX refusal_of_task ON refusal (gateway_id, tenant, task) WHERE task IS NOT NULL;

CREATE TABLE outcome (
    gateway_id   int         NOT NULL,
    instance_id  bigint      NOT NULL,
    id           uuid        NOT NULL,
    occurred_at  timestamptz NOT NULL,
    received_at  timestamptz NOT NULL,
    request      uuid,
    task         text,
    tenant       text        NOT NULL,
    route        text        NOT NULL,
    success      boolean     NOT NULL,
    explicit     boolean     NOT NULL,
    reason       text        NOT NULL,
    started_at   timestamptz,
    ended_at     timestamptz,
    latency_ms   int,
    waited_ms    int         NOT NULL,
    CONSTRAINT outcome_once UNIQUE (gateway_id, id, occurred_at)
) PARTITION BY RANGE (occurred_at);
CREATE INDEX outcome_by_time ON outcome USING brin (occurred_at);
CREATE INDEX outcome_of_request ON outcome (request);
CREATE INDEX outcome_of_task ON outcome (gateway_id, tenant, task) WHERE task IS NOT NULL;

CREATE TABLE transition (
    gateway_id    int         NOT NULL,
    instance_id   bigint      NOT NULL,
    circuit_id    bigint      NOT NULL,
    id            uuid        NOT NULL,
    occurred_at   timestamptz NOT NULL,
    received_at   timestamptz NOT NULL,
    number        bigint      NOT NULL,
    from_state    text        NOT NULL,
    to_state      text        NOT NULL,
    cause         text        NOT NULL,
    mode          text        NOT NULL,
    calls         bigint      NOT NULL,
    failures      bigint      NOT NULL,
    slow          bigint      NOT NULL,
    consecutive   bigint      NOT NULL,
    next_probe_at timestamptz,
    generation    bigint      NOT NULL,
    CONSTRAINT transition_once UNIQUE (gateway_id, id, occurred_at)
) PARTITION BY RANGE (occurred_at);
CREATE INDEX transition_of_circuit ON transition (circuit_id, occurred_at);
CREATE INDEX transition_by_time ON transition USING brin (occurred_at);

-- Tasks that carry the header; the others close with their request's outcome row.
-- Each pair keeps the best candidate of the commutative rule (design 4.7).
CREATE TABLE task (
    gateway_id        int         NOT NULL,
    tenant            text        NOT NULL,
    task              text        NOT NULL,
    first_started_at  timestamptz,
    first_request     uuid,
    route             text        NOT NULL DEFAULT '',
    last_ended_at     timestamptz,
    explicit_at       timestamptz,
    explicit_id       uuid,
    explicit_success  boolean,
    implicit_at       timestamptz,
    implicit_id       uuid,
    implicit_success  boolean,
    PRIMARY KEY (gateway_id, tenant, task)
) PARTITION BY HASH (gateway_id, tenant, task);
CREATE TABLE task_p0 PARTITION OF task FOR VALUES WITH (MODULUS 4, REMAINDER 0);
CREATE TABLE task_p1 PARTITION OF task FOR VALUES WITH (MODULUS 4, REMAINDER 1);
CREATE TABLE task_p2 PARTITION OF task FOR VALUES WITH (MODULUS 4, REMAINDER 2);
CREATE TABLE task_p3 PARTITION OF task FOR VALUES WITH (MODULUS 4, REMAINDER 3);
CREATE INDEX task_by_close ON task (COALESCE(explicit_at, implicit_at));

-- Histograms of milliseconds (domain/histogram): bins, ascending, each bucket << 32 | count.
CREATE FUNCTION switchgear_edges() RETURNS int[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    edges int[] := '{0}';
    edge bigint := 0;
BEGIN
    LOOP
        edge := greatest(edge + 1, edge * 104 / 100);
        EXIT WHEN edge > 2147483647;
        edges := edges || edge::int;
    END LOOP;
    RETURN edges;
END $$;
DO $do$
BEGIN
    -- The edges as a constant, so that a bucket costs one binary search.
    EXECUTE format($f$
        CREATE FUNCTION switchgear_bucket(ms int) RETURNS int
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
        RETURN width_bucket(ms, %L::int[]) - 1
    $f$, switchgear_edges());
END $do$;
-- The sum of any bins in any order, as bins. NULL without any.
CREATE FUNCTION switchgear_compact(bins bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
    SELECT array_agg((bucket << 32) + n ORDER BY bucket)
    FROM (SELECT bin >> 32 AS bucket, sum(bin & 4294967295)::bigint AS n
          FROM unnest(bins) AS bin GROUP BY 1) AS summed
);
CREATE FUNCTION switchgear_merge(one bigint[], other bigint[]) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    -- plpgsql keeps the inner plan; as plain SQL it was measured a fifth slower.
    IF one = '{}' THEN RETURN other; END IF;
    IF other = '{}' THEN RETURN one; END IF;
    RETURN (
        SELECT array_agg((bucket << 32) + n ORDER BY bucket)
        FROM (SELECT bin >> 32 AS bucket, sum(bin & 4294967295)::bigint AS n
              FROM unnest(one || other) AS bin GROUP BY 1) AS summed
    );
END $$;

-- The one rollup of the batch's own transaction; by the minute in which an attempt was begun.
-- What a counter means stands in domain/rollup.
CREATE TABLE rollup_minute (
    gateway_id           int         NOT NULL,
    circuit_id           bigint      NOT NULL,
    minute               timestamptz NOT NULL,
    attempts             int NOT NULL DEFAULT 0,
    firsts               int NOT NULL DEFAULT 0,
    retries              int NOT NULL DEFAULT 0,
    fallbacks            int NOT NULL DEFAULT 0,
    redeliveries         int NOT NULL DEFAULT 0,
    rerouted             int NOT NULL DEFAULT 0,
    succeeded            int NOT NULL DEFAULT 0,
    retryable            int NOT NULL DEFAULT 0,
    permanent            int NOT NULL DEFAULT 0,
    partial              int NOT NULL DEFAULT 0,
    client_cancelled     int NOT NULL DEFAULT 0,
    client_deadline      int NOT NULL DEFAULT 0,
    local_fault          int NOT NULL DEFAULT 0,
    failed               int NOT NULL DEFAULT 0, -- attempts that count against the breaker
    served               int NOT NULL DEFAULT 0,
    refused_breaker      int NOT NULL DEFAULT 0,
    refused_override     int NOT NULL DEFAULT 0,
    refused_budget       int NOT NULL DEFAULT 0,
    refused_other        int NOT NULL DEFAULT 0, -- by any gate but the three before; the six after it part it
    refused_rate         int NOT NULL DEFAULT 0,
    refused_concurrency  int NOT NULL DEFAULT 0,
    refused_key          int NOT NULL DEFAULT 0,
    refused_deadline     int NOT NULL DEFAULT 0,
    refused_policy       int NOT NULL DEFAULT 0,
    refused_cost         int NOT NULL DEFAULT 0,
    would_refuse         int NOT NULL DEFAULT 0, -- calls that ObserveOnly alone let through
    input_tokens         bigint NOT NULL DEFAULT 0,
    cached_tokens        bigint NOT NULL DEFAULT 0,
    cache_write_tokens   bigint NOT NULL DEFAULT 0,
    output_tokens        bigint NOT NULL DEFAULT 0,
    reasoning_tokens     bigint NOT NULL DEFAULT 0,
    wasted_tokens        bigint NOT NULL DEFAULT 0,
    unpriced             int NOT NULL DEFAULT 0, -- attempts whose cost is not known, for whatever reason
    wasted_unpriced      int NOT NULL DEFAULT 0,
    cost_priced          int NOT NULL DEFAULT 0,
    cost_estimated       int NOT NULL DEFAULT 0,
    cost_unpriced        int NOT NULL DEFAULT 0,
    cost_not_billed      int NOT NULL DEFAULT 0,
    cost_unknown         int NOT NULL DEFAULT 0,
    cost_invalid_usage   int NOT NULL DEFAULT 0,
    ended_ms_sum         bigint NOT NULL DEFAULT 0,
    ended_count          int NOT NULL DEFAULT 0,
    cost_gbp             numeric NOT NULL DEFAULT 0,
    wasted_gbp           numeric NOT NULL DEFAULT 0,
    estimated_gbp        numeric NOT NULL DEFAULT 0,
    wasted_estimated_gbp numeric NOT NULL DEFAULT 0,
    PRIMARY KEY (gateway_id, circuit_id, minute)
) WITH (fillfactor = 70);
CREATE INDEX rollup_minute_by_time ON rollup_minute (minute, circuit_id);

-- Histograms of the same minutes in parts, one for each commit: what is written is never changed,
-- and the sum of a minute's parts is its histogram.
CREATE TABLE rollup_minute_part (
    gateway_id  int         NOT NULL,
    circuit_id  bigint      NOT NULL,
    minute      timestamptz NOT NULL,
    latency     bigint[]    NOT NULL, -- of attempts, begin to end
    first_byte  bigint[]    NOT NULL
);
CREATE INDEX rollup_minute_part_by_time ON rollup_minute_part (minute, circuit_id);

-- Ends of requests by the minute of the end: they have no circuit of their own.
CREATE TABLE rollup_minute_request (
    gateway_id  int         NOT NULL,
    minute      timestamptz NOT NULL,
    requests    int         NOT NULL DEFAULT 0,
    succeeded   int         NOT NULL DEFAULT 0,
    latency     bigint[]    NOT NULL DEFAULT '{}', -- end to end
    waited      bigint[]    NOT NULL DEFAULT '{}', -- admission and deferral
    PRIMARY KEY (gateway_id, minute)
) WITH (fillfactor = 70);
CREATE INDEX rollup_minute_request_by_time ON rollup_minute_request (minute);

-- What is derived of finished minutes and hours by restartable jobs (ingest/derive). A minute or an
-- hour before its watermark is derived, or marked as dirty and about to be.
CREATE TABLE rollup_watermark (
    grain  text        PRIMARY KEY,
    upto   timestamptz NOT NULL
);
INSERT INTO rollup_watermark VALUES
    ('minute', date_trunc('minute', now())), ('hour', date_trunc('hour', now(), 'UTC'));
CREATE TABLE rollup_dirty (
    grain  text        NOT NULL,
    at     timestamptz NOT NULL,
    PRIMARY KEY (grain, at)
);

CREATE TABLE rollup_circuit_minute (LIKE rollup_minute INCLUDING DEFAULTS);
ALTER TABLE rollup_circuit_minute DROP COLUMN gateway_id;
ALTER TABLE rollup_circuit_minute
    ADD COLUMN latency bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN first_byte bigint[] NOT NULL DEFAULT '{}',
    ADD PRIMARY KEY (circuit_id, minute);
CREATE INDEX rollup_circuit_minute_by_time ON rollup_circuit_minute (minute);

-- Circuit 0 is (none): requests and tasks without an attempt. Refusals by gate; wasted_final adds
-- to wasted what tasks that ended failed were served; tasks stand in the hour in which they closed.
CREATE TABLE rollup_hour (
    gateway_id            int         NOT NULL,
    circuit_id            bigint      NOT NULL,
    hour                  timestamptz NOT NULL,
    attempts              int NOT NULL,
    firsts                int NOT NULL,
    retries               int NOT NULL,
    fallbacks             int NOT NULL,
    redeliveries          int NOT NULL,
    rerouted              int NOT NULL,
    succeeded             int NOT NULL,
    retryable             int NOT NULL,
    permanent             int NOT NULL,
    partial               int NOT NULL,
    client_cancelled      int NOT NULL,
    client_deadline       int NOT NULL,
    local_fault           int NOT NULL,
    failed                int NOT NULL,
    served                int NOT NULL,
    refused_breaker       int NOT NULL,
    refused_override      int NOT NULL,
    refused_budget        int NOT NULL,
    refused_rate          int NOT NULL,
    refused_concurrency   int NOT NULL,
    refused_key           int NOT NULL,
    refused_deadline      int NOT NULL,
    refused_policy        int NOT NULL,
    refused_cost          int NOT NULL,
    would_refuse          int NOT NULL,
    input_tokens          bigint NOT NULL,
    cached_tokens         bigint NOT NULL,
    cache_write_tokens    bigint NOT NULL,
    output_tokens         bigint NOT NULL,
    reasoning_tokens      bigint NOT NULL,
    wasted_tokens         bigint NOT NULL,
    wasted_final_tokens   bigint NOT NULL,
    unpriced              int NOT NULL,
    wasted_unpriced       int NOT NULL,
    wasted_final_unpriced int NOT NULL,
    cost_estimated        int NOT NULL,
    tasks_succeeded       int NOT NULL,
    tasks_failed          int NOT NULL,
    requests              int NOT NULL,
    requests_succeeded    int NOT NULL,
    cost_gbp              numeric NOT NULL,
    wasted_gbp            numeric NOT NULL,
    wasted_final_gbp      numeric NOT NULL,
    estimated_gbp         numeric NOT NULL,
    latency               bigint[] NOT NULL,
    first_byte            bigint[] NOT NULL,
    request_latency       bigint[] NOT NULL,
    waited                bigint[] NOT NULL,
    PRIMARY KEY (hour, gateway_id, circuit_id)
);
CREATE INDEX rollup_hour_of_circuit ON rollup_hour (circuit_id, hour);
-- The 200 tenants with the most attempts in the hour; the rest are (other).
CREATE TABLE rollup_hour_tenant (
    circuit_id            bigint      NOT NULL,
    tenant                text        NOT NULL,
    route                 text        NOT NULL,
    hour                  timestamptz NOT NULL,
    attempts              int NOT NULL,
    firsts                int NOT NULL,
    retries               int NOT NULL,
    fallbacks             int NOT NULL,
    redeliveries          int NOT NULL,
    rerouted              int NOT NULL,
    succeeded             int NOT NULL,
    retryable             int NOT NULL,
    permanent             int NOT NULL,
    partial               int NOT NULL,
    client_cancelled      int NOT NULL,
    client_deadline       int NOT NULL,
    local_fault           int NOT NULL,
    failed                int NOT NULL,
    served                int NOT NULL,
    refused_breaker       int NOT NULL,
    refused_override      int NOT NULL,
    refused_budget        int NOT NULL,
    refused_rate          int NOT NULL,
    refused_concurrency   int NOT NULL,
    refused_key           int NOT NULL,
    refused_deadline      int NOT NULL,
    refused_policy        int NOT NULL,
    refused_cost          int NOT NULL,
    would_refuse          int NOT NULL,
    input_tokens          bigint NOT NULL,
    cached_tokens         bigint NOT NULL,
    cache_write_tokens    bigint NOT NULL,
    output_tokens         bigint NOT NULL,
    reasoning_tokens      bigint NOT NULL,
    wasted_tokens         bigint NOT NULL,
    wasted_final_tokens   bigint NOT NULL,
    unpriced              int NOT NULL,
    wasted_unpriced       int NOT NULL,
    wasted_final_unpriced int NOT NULL,
    cost_estimated        int NOT NULL,
    tasks_succeeded       int NOT NULL,
    tasks_failed          int NOT NULL,
    requests              int NOT NULL,
    requests_succeeded    int NOT NULL,
    cost_gbp              numeric NOT NULL,
    wasted_gbp            numeric NOT NULL,
    wasted_final_gbp      numeric NOT NULL,
    estimated_gbp         numeric NOT NULL,
    latency               bigint[] NOT NULL,
    first_byte            bigint[] NOT NULL,
    request_latency       bigint[] NOT NULL,
    waited                bigint[] NOT NULL,
    PRIMARY KEY (hour, circuit_id, tenant, route)
);
CREATE INDEX rollup_hour_tenant_of_tenant ON rollup_hour_tenant (tenant, hour);

-- When each kind of background process last showed that it is alive.
CREATE TABLE heartbeat (
    name  text        PRIMARY KEY,
    at    timestamptz NOT NULL
);

-- Day partitions are made ahead by a task and checked at start-up; nobody waits for one. A table is
-- made alone and then attached, because CREATE TABLE ... PARTITION OF would shut out every writer of
-- the parent, and ATTACH does not.
CREATE FUNCTION switchgear_ensure_days(first_day date, last_day date) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    part text;
    day date;
    made int := 0;
BEGIN
    -- Two processes that start together must not both create; the lock lasts until commit.
    PERFORM pg_advisory_xact_lock(hashtext('switchgear_ensure_days'));
    FOREACH parent IN ARRAY ARRAY['attempt', 'refusal', 'outcome', 'transition'] LOOP
        FOR day IN SELECT generate_series(first_day, last_day, interval '1 day')::date LOOP
            part := parent || to_char(day, '_YYYYMMDD');
            IF to_regclass(format('%I', part)) IS NULL THEN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', part, parent);
                EXECUTE format(
                    'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                    parent, part, day::text || ' 00:00:00+00', (day + 1)::text || ' 00:00:00+00');
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

INSERT INTO revision (id, value, epoch) VALUES (1, 0, gen_random_uuid());

CREATE FUNCTION switchgear_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_entry is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_entry_append_only BEFORE UPDATE OR DELETE ON audit_entry
    FOR EACH ROW EXECUTE FUNCTION switchgear_refuse_change();
CREATE TRIGGER audit_entry_no_truncate BEFORE TRUNCATE ON audit_entry
    FOR EACH STATEMENT EXECUTE FUNCTION switchgear_refuse_change();

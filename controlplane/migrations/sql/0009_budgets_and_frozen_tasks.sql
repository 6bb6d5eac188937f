-- What buckets held, as gateways told it (design 5.1, `budget`): kept like the other raw events.
CREATE TABLE budget_event (
    gateway_id   int              NOT NULL,
    instance_id  bigint           NOT NULL,
    id           uuid             NOT NULL,
    occurred_at  timestamptz      NOT NULL,
    received_at  timestamptz      NOT NULL,
    scope        text             NOT NULL, -- system/, tenant/NAME, circuit/NAME
    balance      bigint           NOT NULL,
    earned       bigint           NOT NULL, -- within the window, as are spent and refused
    spent        bigint           NOT NULL,
    refused      bigint           NOT NULL,
    window_s     double precision NOT NULL,
    CONSTRAINT budget_event_once UNIQUE (gateway_id, id, occurred_at)
) PARTITION BY RANGE (occurred_at);
CREATE INDEX budget_event_of_scope ON budget_event (scope, occurred_at);
CREATE INDEX budget_event_by_time ON budget_event USING brin (occurred_at);

-- The same as before, with the new table. Days that are there already get their partition of it at
-- the next start of a web process or worker, or when an event for one comes.
CREATE OR REPLACE FUNCTION switchgear_ensure_days(first_day date, last_day date) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    part text;
    day date;
    made int := 0;
BEGIN
    -- Two processes that start together must not both create; the lock lasts until commit.
    PERFORM pg_advisory_xact_lock(hashtext('switchgear_ensure_days'));
    FOREACH parent IN ARRAY ARRAY['attempt', 'refusal', 'outcome', 'transition', 'budget_event'] LOOP
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

-- A task is frozen seven days after its last request (design 4.7): a caller's word after that does
-- not count, unless a request that comes later moves the end. True while there is such a word.
ALTER TABLE task ADD COLUMN frozen boolean NOT NULL DEFAULT false;

-- Receipts of batches that were late or skewed are few: found without reading the others.
CREATE INDEX receipt_of_faulty_clocks ON receipt (received_at) WHERE late > 0 OR skewed > 0;

-- What a week by any split is read from: the two hour grains once more, one key at a time and
-- without histograms. A week of them is some hundreds of narrow rows a key; of the grains
-- themselves it is half a million wide ones.
CREATE TABLE rollup_hour_split (
    split                 text        NOT NULL, -- circuit, route, tenant or gateway
    hour                  timestamptz NOT NULL,
    key                   text        NOT NULL, -- '' is what has none
    attempts              bigint      NOT NULL,
    firsts                bigint      NOT NULL,
    retries               bigint      NOT NULL,
    fallbacks             bigint      NOT NULL,
    redeliveries          bigint      NOT NULL,
    succeeded             bigint      NOT NULL,
    failed                bigint      NOT NULL,
    refused_breaker       bigint      NOT NULL,
    refused_override      bigint      NOT NULL,
    refused_budget        bigint      NOT NULL,
    refused_rate          bigint      NOT NULL,
    refused_concurrency   bigint      NOT NULL,
    refused_key           bigint      NOT NULL,
    refused_deadline      bigint      NOT NULL,
    refused_policy        bigint      NOT NULL,
    refused_cost          bigint      NOT NULL,
    would_refuse          bigint      NOT NULL,
    unpriced              bigint      NOT NULL,
    wasted_unpriced       bigint      NOT NULL,
    wasted_final_unpriced bigint      NOT NULL,
    cost_estimated        bigint      NOT NULL,
    tasks_succeeded       bigint      NOT NULL,
    tasks_failed          bigint      NOT NULL,
    cost_gbp              numeric     NOT NULL,
    wasted_gbp            numeric     NOT NULL,
    wasted_final_gbp      numeric     NOT NULL,
    PRIMARY KEY (split, hour, key)
);
CREATE INDEX rollup_hour_split_by_time ON rollup_hour_split (hour);

-- Exchange rates with which attempts of an hour were told in pounds.
CREATE TABLE rollup_hour_rate (
    hour   timestamptz NOT NULL,
    fx_id  bigint      NOT NULL,
    PRIMARY KEY (hour, fx_id)
);

-- Makes the splits of [start, stop) anew from the hour grains, and returns how many rows there are.
CREATE FUNCTION switchgear_split_hours(start timestamptz, stop timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    DELETE FROM rollup_hour_split WHERE hour >= start AND hour < stop;
    WITH grains AS (
        SELECT s.split, h.hour, s.key, h.attempts, h.firsts, h.retries, h.fallbacks, h.redeliveries,
            h.succeeded, h.failed, h.refused_breaker, h.refused_override, h.refused_budget,
            h.refused_rate, h.refused_concurrency, h.refused_key, h.refused_deadline,
            h.refused_policy, h.refused_cost, h.would_refuse, h.unpriced, h.wasted_unpriced,
            h.wasted_final_unpriced, h.cost_estimated, h.tasks_succeeded, h.tasks_failed,
            h.cost_gbp, h.wasted_gbp, h.wasted_final_gbp
        FROM rollup_hour h
        CROSS JOIN LATERAL (VALUES
            ('circuit', CASE h.circuit_id WHEN 0 THEN '' ELSE h.circuit_id::text END),
            ('gateway', h.gateway_id::text)) AS s(split, key)
        WHERE h.hour >= start AND h.hour < stop
        UNION ALL
        SELECT s.split, h.hour, s.key, h.attempts, h.firsts, h.retries, h.fallbacks, h.redeliveries,
            h.succeeded, h.failed, h.refused_breaker, h.refused_override, h.refused_budget,
            h.refused_rate, h.refused_concurrency, h.refused_key, h.refused_deadline,
            h.refused_policy, h.refused_cost, h.would_refuse, h.unpriced, h.wasted_unpriced,
            h.wasted_final_unpriced, h.cost_estimated, h.tasks_succeeded, h.tasks_failed,
            h.cost_gbp, h.wasted_gbp, h.wasted_final_gbp
        FROM rollup_hour_tenant h
        CROSS JOIN LATERAL (VALUES ('tenant', h.tenant), ('route', h.route)) AS s(split, key)
        WHERE h.hour >= start AND h.hour < stop
    )
    INSERT INTO rollup_hour_split
    SELECT split, hour, key, sum(attempts), sum(firsts), sum(retries), sum(fallbacks),
        sum(redeliveries), sum(succeeded), sum(failed), sum(refused_breaker),
        sum(refused_override), sum(refused_budget), sum(refused_rate), sum(refused_concurrency),
        sum(refused_key), sum(refused_deadline), sum(refused_policy), sum(refused_cost),
        sum(would_refuse), sum(unpriced), sum(wasted_unpriced), sum(wasted_final_unpriced),
        sum(cost_estimated), sum(tasks_succeeded), sum(tasks_failed), sum(cost_gbp),
        sum(wasted_gbp), sum(wasted_final_gbp)
    FROM grains GROUP BY split, hour, key;
    GET DIAGNOSTICS made = ROW_COUNT;
    RETURN made;
END $$;

-- The hours that are derived already.
SELECT switchgear_split_hours('-infinity', 'infinity');
INSERT INTO rollup_hour_rate
SELECT DISTINCT date_trunc('hour', occurred_at, 'UTC'), fx_id FROM attempt
WHERE fx_id IS NOT NULL AND occurred_at < (SELECT upto FROM rollup_watermark WHERE grain = 'hour');

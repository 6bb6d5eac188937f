-- One circuit over [start, end) in steps: derived minutes, and from the watermark on the minutes of
-- its gateways. Histograms come as bins (domain/histogram) of the whole step.
WITH derived AS (
    SELECT upto FROM rollup_watermark WHERE grain = 'minute'
), minutes AS (
    SELECT minute, attempts, firsts, retries, fallbacks, redeliveries, succeeded, retryable,
        permanent, partial, client_cancelled, client_deadline, local_fault, failed,
        refused_breaker, refused_override, refused_budget, refused_other, would_refuse,
        cost_gbp, wasted_gbp, unpriced, latency, first_byte
    FROM rollup_circuit_minute
    WHERE circuit_id = %(circuit)s AND minute >= %(start)s AND minute < %(end)s
      AND minute < (SELECT upto FROM derived)
    UNION ALL
    SELECT minute, attempts, firsts, retries, fallbacks, redeliveries, succeeded, retryable,
        permanent, partial, client_cancelled, client_deadline, local_fault, failed,
        refused_breaker, refused_override, refused_budget, refused_other, would_refuse,
        cost_gbp, wasted_gbp, unpriced, NULL, NULL
    FROM rollup_minute
    WHERE circuit_id = %(circuit)s AND minute >= %(start)s AND minute < %(end)s
      AND minute >= (SELECT upto FROM derived)
), bins AS (
    SELECT date_bin(%(step)s, minute, %(start)s) AS at,
        array_agg(bin) FILTER (WHERE what = 1) AS latency,
        array_agg(bin) FILTER (WHERE what = 2) AS first_byte
    FROM (
        SELECT minute, 1 AS what, unnest(latency) AS bin FROM minutes
        UNION ALL SELECT minute, 2, unnest(first_byte) FROM minutes
        UNION ALL
        SELECT p.minute, b.what, b.bin
        FROM rollup_minute_part p
        CROSS JOIN LATERAL (SELECT 1 AS what, unnest(p.latency) AS bin
                            UNION ALL SELECT 2, unnest(p.first_byte)) AS b
        WHERE p.circuit_id = %(circuit)s AND p.minute >= %(start)s AND p.minute < %(end)s
          AND p.minute >= (SELECT upto FROM derived)
    ) AS each
    GROUP BY 1
), sums AS (
    SELECT date_bin(%(step)s, minute, %(start)s) AS at,
        sum(attempts) AS attempts, sum(firsts) AS firsts, sum(retries) AS retries,
        sum(fallbacks) AS fallbacks, sum(redeliveries) AS redeliveries,
        sum(succeeded) AS succeeded, sum(retryable) AS retryable, sum(permanent) AS permanent,
        sum(partial) AS partial, sum(client_cancelled) AS client_cancelled,
        sum(client_deadline) AS client_deadline, sum(local_fault) AS local_fault,
        sum(failed) AS failed, sum(refused_breaker) AS refused_breaker,
        sum(refused_override) AS refused_override, sum(refused_budget) AS refused_budget,
        sum(refused_other) AS refused_other, sum(would_refuse) AS would_refuse,
        sum(cost_gbp) AS cost_gbp, sum(wasted_gbp) AS wasted_gbp, sum(unpriced) AS unpriced
    FROM minutes GROUP BY 1
)
SELECT at, attempts, firsts, retries, fallbacks, redeliveries, succeeded, retryable, permanent,
    partial, client_cancelled, client_deadline, local_fault, failed, refused_breaker,
    refused_override, refused_budget, refused_other, would_refuse, cost_gbp, wasted_gbp, unpriced,
    COALESCE(latency, '{}'), COALESCE(first_byte, '{}')
FROM sums LEFT JOIN bins USING (at)
ORDER BY at

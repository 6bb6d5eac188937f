-- One circuit over [start, end) in steps: derived minutes, and from the watermark on the minutes of
-- its gateways and their histograms. Histograms come as bins (domain/histogram) of the whole step,
-- unsummed: those of its minutes one after another. Where steps are made of whole five minutes
-- (fives), their sums stand for the derived minutes, wherever there are any.
WITH derived AS (
    SELECT upto FROM rollup_watermark WHERE grain = 'minute'
), fives AS MATERIALIZED (
    SELECT at, attempts, firsts, retries, fallbacks, redeliveries, succeeded, retryable,
        permanent, partial, client_cancelled, client_deadline, local_fault, failed,
        refused_breaker, refused_override, refused_budget, refused_other, would_refuse,
        cost_gbp, wasted_gbp, unpriced, latency, first_byte
    FROM rollup_circuit_five_minutes
    WHERE %(fives)s AND circuit_id = %(circuit)s AND at >= %(start)s
      AND at <= least(%(end)s, (SELECT upto FROM derived)) - interval '5 minutes'
), minutes AS (
    SELECT at AS minute, attempts, firsts, retries, fallbacks, redeliveries, succeeded, retryable,
        permanent, partial, client_cancelled, client_deadline, local_fault, failed,
        refused_breaker, refused_override, refused_budget, refused_other, would_refuse,
        cost_gbp, wasted_gbp, unpriced, latency, first_byte
    FROM fives
    UNION ALL
    SELECT minute, attempts, firsts, retries, fallbacks, redeliveries, succeeded, retryable,
        permanent, partial, client_cancelled, client_deadline, local_fault, failed,
        refused_breaker, refused_override, refused_budget, refused_other, would_refuse,
        cost_gbp, wasted_gbp, unpriced, latency, first_byte
    FROM rollup_circuit_minute
    WHERE circuit_id = %(circuit)s AND minute >= %(start)s AND minute < %(end)s
      AND minute < (SELECT upto FROM derived)
      AND date_bin('5 minutes', minute, 'epoch') NOT IN (SELECT at FROM fives)
    UNION ALL
    SELECT minute, attempts, firsts, retries, fallbacks, redeliveries, succeeded, retryable,
        permanent, partial, client_cancelled, client_deadline, local_fault, failed,
        refused_breaker, refused_override, refused_budget, refused_other, would_refuse,
        cost_gbp, wasted_gbp, unpriced, NULL, NULL
    FROM rollup_minute
    WHERE circuit_id = %(circuit)s AND minute >= %(start)s AND minute < %(end)s
      AND minute >= (SELECT upto FROM derived)
), parts AS (
    SELECT date_bin(%(step)s, minute, %(start)s) AS at,
        switchgear_concat(latency) AS latency, switchgear_concat(first_byte) AS first_byte
    FROM rollup_minute_part
    WHERE circuit_id = %(circuit)s AND minute >= %(start)s AND minute < %(end)s
      AND minute >= (SELECT upto FROM derived)
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
        sum(cost_gbp) AS cost_gbp, sum(wasted_gbp) AS wasted_gbp, sum(unpriced) AS unpriced,
        switchgear_concat(latency) AS latency, switchgear_concat(first_byte) AS first_byte
    FROM minutes GROUP BY 1
)
SELECT at, attempts, firsts, retries, fallbacks, redeliveries, succeeded, retryable, permanent,
    partial, client_cancelled, client_deadline, local_fault, failed, refused_breaker,
    refused_override, refused_budget, refused_other, would_refuse, cost_gbp, wasted_gbp, unpriced,
    COALESCE(sums.latency || parts.latency, sums.latency, parts.latency, '{}'),
    COALESCE(sums.first_byte || parts.first_byte, sums.first_byte, parts.first_byte, '{}')
FROM sums LEFT JOIN parts USING (at)
ORDER BY at

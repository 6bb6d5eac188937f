"""``/circuits/{name}/series`` and ``/tasks/{id}``: what telemetry says of one circuit, of one task.

Invariant: reading only; a question whose answer would be unbounded is refused with the field.
Money is exact decimal text in pounds, durations are milliseconds, unknown is null.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from controlplane.api.door import answer
from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.durations import duration
from controlplane.domain.rollup import floor_to
from controlplane.errors import Conflict, InvalidInput, NotFound
from controlplane.reports import finding
from controlplane.reports.telemetry import Step, Trace, TraceRow, circuit_series

task_routes = Router(tags=["tasks"])
MOST_STEPS = 2000
_MINUTE = timedelta(minutes=1)
_DEFAULT = timedelta(hours=24)
FROM = Query(None, alias="from", description="default: 24 hours before `to`, at a whole step")
TO = Query(None, alias="to", description="not included; default: now")
STEP = Query("", description="whole minutes, such as `5m` or `1h`; default: about 300 steps")
_GATEWAY = Query(None, max_length=200, description="only at this gateway")
_TENANT = Query(None, max_length=200, description="only of this tenant")
_EXAMPLE_SERIES = {
    "kind": "CircuitSeries",
    "metadata": {"name": "openai/gpt-4o@eu"},
    "spec": {"from": "2026-11-30T03:00:00Z", "to": "2026-11-30T04:00:00Z", "stepSeconds": 60},
    "items": [
        {
            "at": "2026-11-30T03:02:00Z",
            "attempts": 130,
            "firsts": 100,
            "retries": 24,
            "retryRatio": 0.24,
            "fallbacks": 6,
            "redeliveries": 0,
            "verdicts": {"success": 90, "retryable": 38, "permanent": 1, "partial": 1},
            "failed": 39,
            "refused": {"breaker": 12, "override": 0, "budget": 3, "other": 0},
            "wouldRefuse": 0,
            "costGbp": "0.4127",
            "wastedGbp": "0.0611",
            "unpriced": 2,
            "latencyMs": {"p50": 812, "p95": 2460, "p99": 9120},
            "firstByteMs": {"p50": 301, "p95": 900, "p99": 2010},
        }
    ],
}
_EXAMPLE_TASK = {
    "kind": "Task",
    "metadata": {"name": "invoice-4711", "gateway": "demo", "tenant": "acme"},
    "status": {"success": True, "costGbp": "0.0031", "unpriced": 0},
    "items": [
        {
            "kind": "attempt",
            "at": "2026-11-30T03:02:11.120Z",
            "circuit": "openai/gpt-4o@eu",
            "ordinal": 1,
            "role": "first",
            "verdict": "retryable",
            "status": 503,
        },
        {
            "kind": "refusal",
            "at": "2026-11-30T03:02:11.480Z",
            "circuit": "openai/gpt-4o@eu",
            "gate": "budget",
        },
    ],
}


def example(said: dict[str, Any], **refusals: str) -> dict[str, Any]:
    """What the document shows of an answer, and in words of each status that refuses."""
    responses: dict[Any, Any] = {
        200: {"description": "OK", "content": {"application/json": {"example": said}}}
    }
    responses |= {int(status[1:]): {"description": words} for status, words in refusals.items()}
    return {"responses": responses}


SERIES = example(
    _EXAMPLE_SERIES, s404="No such circuit", s422="A time or a step that cannot be answered"
)


def series(
    circuit: int, name: Name, since: datetime | None, until: datetime | None, step: str
) -> HttpResponse:
    """A circuit's steps that have anything in them."""
    end = until or datetime.now(UTC)
    start = since or end - _DEFAULT
    length = _step(step, start, end)
    if since is None:
        # Steps of the clock: two who ask see the same ones, and sums of five minutes fit them.
        start = floor_to(length, start)
    found = circuit_series(circuit, start, end, length)
    return answer(
        {
            "kind": "CircuitSeries",
            "metadata": {"name": str(name)},
            "spec": {"from": start, "to": end, "stepSeconds": int(length.total_seconds())},
            "items": [_described(one) for one in found],
        }
    )


def _step(text: str, start: datetime, end: datetime) -> timedelta:
    if start >= end:
        raise _fault("from", "write a time before `to`")
    longest = timedelta(days=settings.RAW_RETENTION_DAYS + 1)
    if end - start > longest:
        raise _fault("from", f"minutes are kept for {settings.RAW_RETENTION_DAYS} days")
    if not text:
        return max(_MINUTE, -(-(end - start) // (300 * _MINUTE)) * _MINUTE)
    seconds = duration(text)
    if seconds is None or not 60 <= seconds <= longest.total_seconds() or seconds % 60:
        raise _fault("step", "write whole minutes, such as 1m, 5m or 1h")
    if (end - start).total_seconds() / seconds > MOST_STEPS:
        raise _fault("step", f"at most {MOST_STEPS} steps are answered; write a longer one")
    return timedelta(seconds=seconds)


def _fault(field: str, message: str) -> InvalidInput:
    return InvalidInput(f"{field}: {message}", errors=[{"field": field, "message": message}])


def _described(one: Step) -> dict[str, Any]:
    quantiles = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {
        "at": one.at,
        "attempts": one.attempts,
        "firsts": one.firsts,
        "retries": one.retries,
        "retryRatio": one.retry_ratio,
        "fallbacks": one.fallbacks,
        "redeliveries": one.redeliveries,
        "verdicts": {
            "success": one.succeeded,
            "retryable": one.retryable,
            "permanent": one.permanent,
            "partial": one.partial,
            "client_cancelled": one.client_cancelled,
            "client_deadline": one.client_deadline,
            "local_fault": one.local_fault,
        },
        "failed": one.failed,
        "refused": {
            "breaker": one.refused_breaker,
            "override": one.refused_override,
            "budget": one.refused_budget,
            "other": one.refused_other,
        },
        "wouldRefuse": one.would_refuse,
        "costGbp": str(one.cost_gbp),
        "wastedGbp": str(one.wasted_gbp),
        "unpriced": one.unpriced,
        "latencyMs": {name: one.latency_ms(q) for name, q in quantiles.items()},
        "firstByteMs": {name: one.first_byte_ms(q) for name, q in quantiles.items()},
    }


@task_routes.get(
    "/{path:name}",
    summary="What happened to one task",
    openapi_extra=example(
        _EXAMPLE_TASK,
        s404="No task of that id has ended here",
        s409="Known at several gateways or tenants; `candidates` lists them",
    ),
)
def get_task(
    request: HttpRequest, name: str, gateway: str | None = _GATEWAY, tenant: str | None = _TENANT
) -> HttpResponse:
    """Attempts, refusals, waits and ends in order; a request's id finds its task.

    A task is known once a request of it has ended.
    """
    found = finding.where_known(name, gateway, tenant)
    if not found:
        raise NotFound(f"No task or request {name!r} has ended here, as far as that is kept.")
    if len(found) > 1:
        listed = [{"id": hit.id, "gateway": hit.gateway, "tenant": hit.tenant} for hit in found]
        raise Conflict(
            f"{name} is known at several gateways or tenants: name `gateway` and `tenant`.",
            code="ambiguous",
            candidates=listed,
        )
    hit = found[0]
    trace = finding.trace(hit.gateway_id, hit.tenant, hit.id)
    if trace is None:
        raise NotFound(f"Nothing is kept any more of {name!r}.")
    return answer(_task(hit, trace))


def _task(hit: finding.Known, trace: Trace) -> dict[str, Any]:
    return {
        "kind": "Task",
        "metadata": {"name": hit.id, "gateway": hit.gateway, "tenant": hit.tenant},
        "status": {
            "success": trace.success,
            "costGbp": str(trace.cost_gbp),
            "unpriced": trace.unpriced,
        },
        "items": [_row(row) for row in trace.rows],
    }


def _row(row: TraceRow) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": row.kind, "at": row.occurred_at, "id": str(row.id)}
    shown["request"] = str(row.request) if row.request else None
    if row.provider:
        shown["circuit"] = str(Name(row.provider, row.model or "", row.region or ""))
    if row.kind == "refusal":
        return shown | {"gate": row.verdict, "detail": row.reason}
    shown |= {"reason": row.reason, "waitedMs": row.waited_ms, "endedMs": row.ended_ms}
    if row.kind == "outcome":
        return shown | {"success": row.success, "explicit": row.explicit}
    return shown | {
        "ordinal": row.ordinal,
        "role": row.role,
        "verdict": row.verdict,
        "status": row.status,
        "firstByteMs": row.first_byte_ms,
        "served": row.served,
        "costGbp": None if row.cost_gbp is None else str(row.cost_gbp),
        "costStatus": row.cost_status,
    }

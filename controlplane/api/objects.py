"""Rows as the objects that people read: kind, metadata, spec, status, conditions.

Invariant: ``status`` is what was observed and says of which generation; nothing in it is inferred
from the spec. Unknown is null, never 0.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from controlplane.api.door import camel
from controlplane.domain.overrides import observed
from controlplane.domain.sync import SyncVerdict
from controlplane.models import (
    AuditEntry,
    BreakerPolicy,
    CircuitState,
    LocalOverride,
    Override,
    Probe,
    RetryBudget,
    Route,
)
from controlplane.reports import conditions
from controlplane.reports.circuits import WOULD_REFUSE_MINUTES, CircuitReport
from controlplane.reports.conditions import Condition
from controlplane.reports.effect import Effect
from controlplane.reports.fleet import GatewayReport, Member
from controlplane.reports.progress import Progress, Stage, Step
from controlplane.reports.wall import Rates

_MATCH = ("gateway", "selector", "provider", "model", "region")


def override(row: Override, progress: Progress | None, now: datetime) -> dict[str, Any]:
    """An override with how far it has come."""
    return {
        "kind": "Override",
        "metadata": metadata_of(row),
        "spec": {
            "mode": row.mode,
            **match_of(row),
            "reason": row.reason,
            "ticket": row.ticket,
            "expiresAt": row.expires_at,
            "allowLastHealthy": row.allow_last_healthy,
            **({"breakGlass": True} if row.break_glass else {}),
        },
        "status": _override_status(row, progress, now)
        | ({"acknowledgedBy": row.acknowledged_by or None} if row.break_glass else {}),
    }


def _override_status(row: Override, progress: Progress | None, now: datetime) -> dict[str, Any]:
    active = row.ended_at is None and now < row.expires_at
    status: dict[str, Any] = {
        "active": active,
        "remainingSeconds": max(0.0, (row.expires_at - now).total_seconds()) if active else 0,
        "endedAt": row.ended_at,
        "endedBy": row.ended_by or None,
        "endCause": row.end_cause or (None if active else "Expired"),
        "observedGeneration": row.generation,
    }
    if progress is not None:
        status["phase"] = progress.phase if active else status["endCause"]
        status |= progress_of(progress)
        status["conditions"] = conditions_of(conditions.of_override(row, progress, now))
    return status


def conditions_of(found: list[Condition]) -> list[dict[str, Any]]:
    """Conditions as Kubernetes writes them; ``lastTransitionTime`` null where it is not kept."""
    return [
        {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "lastTransitionTime": one.since,
            "observedGeneration": one.generation,
        }
        for one in found
    ]


def progress_of(progress: Progress) -> dict[str, Any]:
    """How far something has come, at each instance."""
    return {
        "recordedAt": progress.recorded_at,
        "counts": {
            "targeted": len(progress.steps),
            **{
                camel(stage.value[0].lower() + stage.value[1:]): progress.count(stage)
                for stage in Stage
            },
        },
        "instances": [_step(step) for step in progress.steps],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "gateway": step.gateway,
        "slot": step.slot,
        "bootId": step.boot_id,
        "stage": step.stage.value,
        "atBoot": step.at_boot,
        "deliveredMs": step.delivered_ms,
        "enforcedMs": step.enforced_ms,
        "judgedMs": step.judged_ms,
        "liftedMs": step.lifted_ms,
        "reason": step.reason or None,
        "message": step.message or None,
        "fieldPath": step.field_path or None,
        "firstEffectAt": step.first_effect_at,
        "lastSeenAt": step.last_seen_at,
    }


def probe(row: Probe, progress: Progress, now: datetime) -> dict[str, Any]:
    """A probe with what became of it at each instance."""
    active = row.ended_at is None and now < row.expires_at
    return {
        "kind": "Probe",
        "metadata": metadata_of(row),
        "spec": {**match_of(row), "reason": row.reason, "expiresAt": row.expires_at},
        "status": {"active": active, "phase": progress.phase} | progress_of(progress),
    }


def effect(found: Effect) -> dict[str, Any]:
    """What a dry run would touch. Money is exact decimal text in £ a minute."""
    rates = found.rates
    return {
        "at": found.at,
        "circuits": [str(circuit) for circuit in found.circuits],
        "callsPerSecond": round(rates.attempts / 60, 3),
        "gbpPerMinute": f"{rates.cost_gbp:.9f}",
        "unpricedPerMinute": rates.unpriced,
        "wastedGbpPerMinute": f"{rates.wasted_gbp:.9f}",
        "latencyMs": {"p50": found.latency_ms(0.5), "p95": found.latency_ms(0.95)},
        "routes": [
            {
                "name": route.name,
                "recorded": route.recorded,
                "targetsLeft": [str(circuit) for circuit in route.left],
                "callsPerSecond": round(route.attempts / 60, 3),
            }
            for route in found.routes
        ],
    }


def gateway(report: GatewayReport, now: datetime) -> dict[str, Any]:
    """A gateway with its instances, each with its sync verdict."""
    row, config = report.row, report.config
    return {
        "kind": "Gateway",
        "metadata": {
            "name": row.name,
            "labels": row.labels,
            "resourceVersion": str(row.resource_version),
            "createdAt": row.created_at,
            "createdBy": row.created_by,
        },
        "spec": {
            "generation": config.generation if config else None,
            "hash": config.hash if config else None,
            "items": config.items if config else None,
            "compiledAt": config.compiled_at if config else None,
        },
        "status": {
            "epoch": report.epoch,
            "live": sum(member.live for member in report.members),
            "conditions": conditions_of(conditions.of_gateway(report)),
            "counts": _counts([member.verdict for member in report.members]),
            "instances": [_instance(member, now) for member in report.members],
            "localOverrides": [local_override(row) for row in report.local],
        },
    }


def local_override(row: LocalOverride) -> dict[str, Any]:
    """An override that somebody made on a gateway's host: reported, not ours."""
    return {
        "kind": "LocalOverride",
        "metadata": {"name": row.uid, "createdAt": row.created_at, "createdBy": row.made_by},
        "spec": {
            "gateway": row.gateway.name,
            "host": row.host,
            "mode": row.mode,
            "provider": row.provider,
            "model": row.model,
            "region": row.region,
            "reason": row.reason,
            "expiresAt": row.expires_at,
        },
        "status": {
            "source": "Local",
            "firstHeardAt": row.first_heard_at,
            "endedAt": row.ended_at,
            "endCause": row.end_cause or None,
        },
    }


def _counts(verdicts: list[SyncVerdict]) -> dict[str, int]:
    words = sorted({verdict.sync.value for verdict in verdicts})
    return {word: sum(v.sync.value == word for v in verdicts) for word in words}


def _instance(member: Member, now: datetime) -> dict[str, Any]:
    row = member.row
    return {
        "slot": row.slot,
        "bootId": str(row.boot_id),
        "version": row.version,
        "sync": member.verdict.sync.value,
        "reason": member.verdict.reason,
        "late": member.verdict.late,
        "receivedGeneration": row.received_generation,
        "appliedGeneration": row.applied_generation,
        "appliedHash": row.applied_hash,
        "appliedAt": row.applied_at,
        "refusedGeneration": row.refused_generation or None,
        "refusedReason": row.refused_reason or None,
        "configSource": row.config_source or None,
        "startedAt": row.started_at,
        "lastSeenAt": row.last_seen_at,
        "silentSeconds": max(0.0, round((now - row.last_seen_at).total_seconds(), 3)),
        "items": row.items,
        "spool": row.spool,
        "clock": row.clock,
        "missingBatches": row.lost_batches,
        "awaitedBatches": row.awaited_batches,
    }


def circuit(report: CircuitReport, rates: Rates) -> dict[str, Any]:
    """A circuit: what rules it, and what each instance last said. ``rates``: the last minute's."""
    name = report.name
    return {
        "kind": "Circuit",
        "metadata": {"name": str(name)},
        "spec": {"provider": name.provider, "model": name.model, "region": name.region},
        "status": {
            "desired": report.rulings(),
            "conditions": conditions_of(conditions.of_circuit(report, rates)),
            "wouldHaveRefused": {"calls": report.would_refuse, "minutes": WOULD_REFUSE_MINUTES},
            "instances": [_state(row, live) for row, live in report.states],
        },
    }


def _state(row: CircuitState, live: bool) -> dict[str, Any]:
    return {
        "gateway": row.instance.gateway.name,
        "slot": row.instance.slot,
        "bootId": str(row.instance.boot_id),
        # An old word is not the present: it is named as what it was.
        "state": row.state if live else "Unknown",
        "lastState": row.state,
        # What its next call meets: a hand and a ramp included.
        "observed": observed(row.state, row.mode, row.ramp_percent) if live else "Unknown",
        "since": row.since,
        "cause": row.cause,
        "number": row.number,
        "mode": row.mode,
        "overrideUid": row.override_uid or None,
        "wouldBe": row.would_be or None,
        "nextProbeAt": row.next_probe_at,
        "rampPercent": row.ramp_percent,
        "stuck": row.stuck,
        "keysReady": row.keys_ready,
        "keysTotal": row.keys_total,
        "keysNote": row.keys_note or None,
        "reportedAt": row.reported_at,
        "lastSeenAt": row.instance.last_seen_at,
    }


def audit(entry: AuditEntry) -> dict[str, Any]:
    """One audit entry."""
    return {
        "id": entry.pk,
        "at": entry.at,
        "actor": entry.actor,
        "actorKind": entry.actor_kind,
        "action": entry.action,
        "objectKind": entry.object_kind,
        "objectName": entry.object_name,
        "reason": entry.reason or None,
        "before": entry.before,
        "after": entry.after,
        "address": entry.address or None,
        "requestId": entry.request_id or None,
        "resourceVersion": entry.resource_version,
    }


def many(kind: str, items: list[dict[str, Any]], revision: int) -> dict[str, Any]:
    """A list with the revision that it was read at."""
    return {"kind": f"{kind}List", "metadata": {"resourceVersion": str(revision)}, "items": items}


def metadata_of(row: Override | Probe | BreakerPolicy | RetryBudget | Route) -> dict[str, Any]:
    """What names an object and its version."""
    return {
        "name": row.name,
        "uid": str(row.uid),
        "resourceVersion": str(row.resource_version),
        "generation": row.generation,
        "createdAt": row.created_at,
        "createdBy": row.created_by,
        "updatedAt": row.updated_at,
        "updatedBy": row.updated_by,
    }


def match_of(row: Override | Probe | BreakerPolicy | RetryBudget | Route) -> dict[str, Any]:
    """What an object selects."""
    return {part: getattr(row, part) for part in _MATCH}

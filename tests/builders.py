"""Rows for tests, inserted for real: plain functions with sensible defaults.

Invariant: every function writes what the product itself would have written, and returns the row
(or its id where the table has no model). Times default to the database-independent ``now()`` here.
"""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db import connection

from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.histogram import bins_of, bucket_of
from controlplane.models import (
    AuditEntry,
    BreakerPolicy,
    BudgetState,
    Circuit,
    CircuitState,
    Delivery,
    Gateway,
    GatewayConfig,
    Instance,
    LocalOverride,
    Override,
    Person,
    Probe,
    Provider,
    RetryBudget,
    Revision,
    Role,
)

PASSWORD = "a-long-enough-test-password"
_counter = itertools.count(1)


def now() -> datetime:
    """The real time, aware."""
    return datetime.now(UTC)


def ago(seconds: float) -> datetime:
    """That many seconds before now."""
    return now() - timedelta(seconds=seconds)


def person(name: str = "oncall", role: Role = Role.OPERATOR, **fields: Any) -> Person:
    """Somebody with a password (``PASSWORD``)."""
    return Person.objects.create_user(username=name, password=PASSWORD, role=role, **fields)


def product_person(name: str = "oncall", role: Role = Role.OPERATOR) -> Person:
    """The same for a web process of the product, which does not know the tests' quick hash."""
    made = person(name, role)
    made.password = PBKDF2PasswordHasher().encode(PASSWORD, "tests", iterations=1000)
    made.save(update_fields=["password"])
    return made


def gateway(name: str = "chat", generation: int = 1, **fields: Any) -> Gateway:
    """A gateway with a compiled configuration of that generation."""
    row = Gateway.objects.create(
        name=name, resource_version=1, created_at=ago(86400), created_by="tests", **fields
    )
    GatewayConfig.objects.create(
        gateway=row,
        generation=generation,
        hash=f"{generation:064x}",
        revision=1,
        items=0,
        spec='{"policies":[],"budgets":[],"overrides":[],"routes":[],"prices":[]}',
        compiled_at=ago(3600),
    )
    return row


def instance(of: Gateway, slot: str | None = None, **fields: Any) -> Instance:
    """A running instance in contact, with its gateway's configuration applied."""
    config = of.config
    values: dict[str, Any] = {
        "boot_id": uuid.uuid4(),
        "slot": slot or f"{of.name}/{next(_counter)}",
        "started_at": ago(7200),
        "first_seen_at": ago(7200),
        "last_seen_at": now(),
        "status_seq": 1,
        "received_generation": config.generation,
        "applied_generation": config.generation,
        "applied_hash": config.hash,
        "applied_at": ago(3600),
        "config_source": "Stream",
        "epoch": str(Revision.objects.get(id=1).epoch),
    }
    return Instance.objects.create(gateway=of, **(values | fields))


def gap(of: Instance, first: int, last: int, since: datetime | None = None) -> None:
    """Batches of these numbers have not come, for so long that they are lost."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO batch_gap (instance_id, first_seq, last_seq, since)"
            " VALUES (%s, %s, %s, %s)",
            [of.pk, first, last, since or ago(600)],
        )


def circuit(provider: str = "openai", model: str = "gpt-4o", region: str = "us-east") -> Circuit:
    """A known circuit."""
    row, _ = Circuit.objects.get_or_create(
        provider=provider, model=model, region=region, defaults={"first_seen_at": ago(86400)}
    )
    return row


def circuit_state(of: Instance, target: Circuit, state: str = "Closed", **fields: Any) -> Any:
    """One breaker of one instance; said again, the row is changed."""
    made = unsaved_state(of, target, state, **fields)
    CircuitState.objects.filter(instance=of, circuit=target).delete()
    made.save()
    return made


def unsaved_state(of: Instance, target: Circuit, state: str, **fields: Any) -> CircuitState:
    """The same without writing it, for many at once."""
    values: dict[str, Any] = {"number": 1, "since": ago(600), "cause": "Boot"}
    values |= {"reported_at": now()} | fields
    return CircuitState(
        gateway_id=of.gateway_id, instance=of, circuit=target, state=state, **values
    )


def budget_state(of: Instance, scope: str = "system/", balance: int = 40, **fields: Any) -> Any:
    """One bucket of one instance."""
    values = {"reported_at": now()} | fields
    return BudgetState.objects.create(
        gateway_id=of.gateway_id, instance=of, scope=scope, balance=balance, **values
    )


def budget_word(of: Instance, scope: str, at: datetime, **fields: Any) -> None:
    """What one instance said of one bucket, in the event table."""
    row: dict[str, Any] = {
        "gateway_id": of.gateway_id,
        "instance_id": of.pk,
        "id": uuid.uuid4(),
        "occurred_at": at,
        "received_at": at,
        "scope": scope,
        "balance": 0,
        "earned": 0,
        "spent": 0,
        "refused": 0,
        "window_s": 10.0,
    } | fields
    names, marks = ", ".join(row), ", ".join(["%s"] * len(row))
    with connection.cursor() as cursor:
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", [at.date(), at.date()])
        cursor.execute(f"INSERT INTO budget_event ({names}) VALUES ({marks})", list(row.values()))


def rollup(of: Gateway, target: Circuit, minute: datetime | None = None, **counts: Any) -> None:
    """One minute of one circuit at one gateway, marked as ingest marks it if it is not derived."""
    rollups(of, [(target, minute or now(), counts)])


def rollups(of: Gateway, minutes: list[tuple[Circuit, datetime, dict[str, Any]]]) -> None:
    """The same for many minutes of a gateway, all with the same counts, in two statements."""
    rows = [
        {
            "gateway_id": of.pk,
            "circuit_id": target.pk,
            "minute": at.replace(second=0, microsecond=0),
        }
        | counts
        for target, at, counts in minutes
    ]
    _copy("rollup_minute", rows)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO rollup_dirty (grain, at)"
            " SELECT grain, at FROM rollup_watermark, unnest(%s::timestamptz[]) AS said (at)"
            " WHERE grain = 'minute' AND upto > at ON CONFLICT DO NOTHING",
            [sorted({row["minute"] for row in rows})],
        )


def _copy(table: str, rows: list[dict[str, Any]]) -> None:
    """Rows with the same names, as the ingest writes: thousands one by one took seconds."""
    statement = f"COPY {table} ({', '.join(rows[0])}) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            assert row.keys() == rows[0].keys()
            copy.write_row(list(row.values()))


def _days_seen() -> set[date]:
    """Days whose partitions exist: making sure takes 30 ms."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_date(right(relname, 8), 'YYYYMMDD') FROM pg_class"
            " WHERE relname ~ '^transition_[0-9]{8}$'"
        )
        return {row[0] for row in cursor.fetchall()}


def transition(
    of: Instance, target: Circuit, to: str, at: datetime | None = None, **f: Any
) -> None:
    """One breaker change in the event table."""
    transitions([unsaved_transition(of, target, to, at, **f)])


def unsaved_transition(
    of: Instance, target: Circuit, to: str, at: datetime | None = None, **f: Any
) -> dict[str, Any]:
    """The same without writing it, for many at once."""
    at = at or now()
    return {
        "gateway_id": of.gateway_id,
        "instance_id": of.pk,
        "circuit_id": target.pk,
        "id": uuid.uuid4(),
        "occurred_at": at,
        "received_at": at,
        "number": next(_counter),
        "from_state": "Closed" if to == "Open" else "Open",
        "to_state": to,
        "cause": "FailureRatio" if to == "Open" else "OpenPeriodOver",
        "mode": "Auto",
        "calls": 0,
        "failures": 0,
        "slow": 0,
        "consecutive": 0,
        "generation": 1,
    } | f


def transitions(rows: list[dict[str, Any]]) -> None:
    """Write what `unsaved_transition` made, and the days that are missing for it."""
    missing = {row["occurred_at"].date() for row in rows} - _days_seen()
    with connection.cursor() as cursor:
        for day in sorted(missing):
            cursor.execute("SELECT switchgear_ensure_days(%s, %s)", [day, day])
    _copy("transition", rows)


def override(mode: str = "ForceOpen", **fields: Any) -> Override:
    """An active override that ends in half an hour."""
    values: dict[str, Any] = {
        "name": f"ovr-{next(_counter)}",
        "mode": mode,
        "reason": "provider browns out",
        "resource_version": next(_counter),
        "created_at": ago(60),
        "created_by": "oncall",
        "updated_at": ago(60),
        "updated_by": "oncall",
        "expires_at": now() + timedelta(minutes=30),
    }
    return Override.objects.create(**(values | fields))


def delivery(
    of: Instance, what: Override | Probe, verdict: str = "Applied", **fields: Any
) -> Delivery:
    """What became of an override's present generation at one instance."""
    values: dict[str, Any] = {
        "gateway_id": of.gateway_id,
        "kind": type(what).__name__,
        "name": what.name,
        "generation": what.generation,
        "delivered_at": now(),
        "acknowledged_at": now() if verdict else None,
        "verdict": verdict,
    } | fields
    row, _ = Delivery.objects.update_or_create(
        instance=of, uid=str(what.uid), generation=what.generation, defaults=values
    )
    return row


def local_override(of: Gateway, mode: str = "ForceOpen", **fields: Any) -> LocalOverride:
    """What somebody forced on a host of the gateway, still in force."""
    values: dict[str, Any] = {
        "uid": f"local-{next(_counter)}",
        "host": "host-a",
        "provider": "openai",
        "reason": "the control plane is down",
        "made_by": "root (sudo ann)",
        "created_at": ago(300),
        "first_heard_at": ago(299),
        "expires_at": now() + timedelta(minutes=30),
    }
    return LocalOverride.objects.create(gateway=of, mode=mode, **(values | fields))


def probe(**fields: Any) -> Probe:
    """A probe that was asked for a moment ago."""
    values: dict[str, Any] = {
        "name": f"prb-{next(_counter)}",
        "provider": "openai",
        "reason": "they say it is over",
        "resource_version": next(_counter),
        "created_at": ago(5),
        "created_by": "oncall",
        "updated_at": ago(5),
        "updated_by": "oncall",
        "expires_at": now() + timedelta(seconds=55),
    }
    return Probe.objects.create(**(values | fields))


def attempts(of: Instance, target: Circuit, number: int, **fields: Any) -> None:
    """That many alike rows of the event table: first attempts that timed out."""
    at = fields.pop("occurred_at", now())
    row: dict[str, Any] = {
        "gateway_id": of.gateway_id, "instance_id": of.pk, "circuit_id": target.pk,
        "occurred_at": at, "received_at": at, "request": uuid.uuid4(), "ordinal": 1,
        "role": "first", "rerouted": False, "key": "main", "tenant": "default", "route": "chat",
        "verdict": "retryable", "reason": "timeout", "counts": True, "waited_ms": 0,
        "tokens_estimated": False, "service_tier": "", "billing": "unknown", "served": False,
        "generation": 1, "cost_status": "unknown",
    } | fields  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("SELECT switchgear_ensure_days(%s, %s)", [at.date(), at.date()])
        names, marks = ", ".join(row), ", ".join(["%s"] * len(row))
        cursor.execute(
            f"INSERT INTO attempt (id, {names}) SELECT gen_random_uuid(), {marks}"
            " FROM generate_series(1, %s)",
            [*row.values(), number],
        )


def latency(of: Gateway, target: Circuit, milliseconds: dict[int, int]) -> None:
    """How long the running minute's attempts took: milliseconds -> how many."""
    bins = bins_of({bucket_of(ms): count for ms, count in milliseconds.items()})
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO rollup_minute_part VALUES (%s, %s, date_trunc('minute', now()), %s, '{}')",
            [of.pk, target.pk, bins],
        )


def derived(target: Circuit, milliseconds: dict[int, int]) -> None:
    """The newest derived minute's attempts of a circuit: how many took how many milliseconds."""
    bins = bins_of({bucket_of(ms): count for ms, count in milliseconds.items()})
    count = sum(milliseconds.values())
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE rollup_watermark SET upto = date_trunc('minute', now()) - interval '2 minutes'"
            " WHERE grain = 'minute'"
        )
        cursor.execute(
            "INSERT INTO rollup_circuit_minute (circuit_id, minute, attempts, ended_count, latency)"
            " VALUES (%s, date_trunc('minute', now()) - interval '3 minutes', %s, %s, %s)",
            [target.pk, count, count, bins],
        )


def breaker_policy(name: str = "default", **fields: Any) -> BreakerPolicy:
    """A breaker policy of every circuit; ``spec`` is what its gateways get."""
    values: dict[str, Any] = {
        "name": name,
        "spec": {},
        "resource_version": next(_counter),
        "created_at": ago(3600),
        "created_by": "tests",
        "updated_at": ago(3600),
        "updated_by": "tests",
    }
    return BreakerPolicy.objects.create(**(values | fields))


def retry_budget(name: str = "default", level: str = "circuit", **fields: Any) -> RetryBudget:
    """A retry budget of 10 %."""
    values: dict[str, Any] = {
        "name": name,
        "level": level,
        "spec": {"ratio_per_mille": 100, "min_per_second": 0.1, "burst": 20},
        "resource_version": next(_counter),
        "created_at": ago(3600),
        "created_by": "tests",
        "updated_at": ago(3600),
        "updated_by": "tests",
    }
    return RetryBudget.objects.create(**(values | fields))


def provider(name: str = "openai", status_url: str = "https://status.example.com") -> Provider:
    """A provider's record."""
    return Provider.objects.create(
        name=name, status_url=status_url, created_at=ago(3600), updated_at=ago(3600),
        updated_by="tests",
    )  # fmt: skip


def audit_entry(action: str = "create", **fields: Any) -> AuditEntry:
    """One line of the audit."""
    values: dict[str, Any] = {
        "at": now(),
        "actor": "oncall",
        "actor_kind": "person",
        "action": action,
        "object_kind": "Override",
        "object_name": "ovr-1",
        "reason": "provider browns out",
    }
    return AuditEntry.objects.create(**(values | fields))


def pounds(text: str) -> Decimal:
    """An exact amount."""
    return Decimal(text)


def name_of(row: Circuit) -> str:
    """The written form of a circuit row."""
    return str(Name(row.provider, row.model, row.region))

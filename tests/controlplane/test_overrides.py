"""Forcing, extending and releasing: who may, what conflicts, and that it always ends."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from controlplane.actions import gateways, overrides
from controlplane.actions.actor import SYSTEM, Actor
from controlplane.errors import Conflict, Forbidden, InvalidInput, NotFound
from controlplane.models import (
    AuditEntry,
    ConfigGeneration,
    GatewayConfig,
    Override,
    Revision,
    Role,
)
from tests import builders

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 3, 10, tzinfo=UTC)
ANN = Actor("ann", "person", Role.OPERATOR, "192.0.2.1")
BEN = Actor("ben", "person", Role.OPERATOR)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def fleet() -> None:
    gateways.create(actor=SYSTEM, name="eu-1", labels={"tier": "eu"}, now=NOW)
    gateways.create(actor=SYSTEM, name="us-1", labels={"tier": "us"}, now=NOW)
    builders.circuit("openai", "gpt-4o", "")
    builders.circuit("anthropic", "claude-sonnet-5", "eu")


def force(actor: Actor = ANN, **fields: Any) -> Override:
    values: dict[str, Any] = {
        "actor": actor,
        "mode": "ForceOpen",
        "reason": "provider is failing",
        "expires_in": HOUR,
        "provider": "openai",
        "now": NOW,
    }
    return overrides.force(**(values | fields))


def generations() -> dict[str, int]:
    return dict(GatewayConfig.objects.values_list("gateway__name", "generation"))


def test_a_forced_circuit_is_recorded_compiled_and_audited() -> None:
    before = generations()
    row = force()
    assert generations() == {name: n + 1 for name, n in before.items()}
    assert row.expires_at == NOW + HOUR
    assert row.resource_version == Revision.objects.get(id=1).value
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor, entry.action, entry.object_name) == ("ann", "force", row.name)
    assert (entry.reason, entry.address) == ("provider is failing", "192.0.2.1")
    assert entry.resource_version == row.resource_version
    assert entry.after is not None
    assert entry.after["mode"] == "ForceOpen"


def test_only_the_gateways_that_are_meant_get_a_new_generation() -> None:
    before = generations()
    force(selector="tier=eu")
    after = generations()
    assert after["eu-1"] == before["eu-1"] + 1
    assert after["us-1"] == before["us-1"]
    newest = ConfigGeneration.objects.get(gateway__name="eu-1", generation=after["eu-1"])
    assert newest.revision == Revision.objects.get(id=1).value


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"reason": ""}, "reason"),
        ({"reason": "  "}, "reason"),
        ({"reason": "a\x00b"}, "reason"),
        ({"reason": "x" * 1001}, "reason"),
        ({"expires_in": None}, "expires_in"),
        ({"expires_at": NOW + HOUR}, "expires_in"),
        ({"expires_in": timedelta(hours=25)}, "expires_in"),
        ({"expires_in": timedelta(0)}, "expires_in"),
        ({"expires_in": None, "expires_at": NOW - HOUR}, "expires_at"),
        ({"expires_in": None, "expires_at": datetime(2026, 11, 30, 4)}, "expires_at"),  # noqa: DTZ001
        ({"mode": "Auto"}, "mode"),
        ({"mode": "ForceClosed", "expires_in": timedelta(hours=3)}, "expires_in"),
        ({"provider": "opnai"}, "provider"),
        ({"model": "claude-sonnet-5"}, "model"),
        ({"region": "eu"}, "region"),
        ({"gateway": "eu-2"}, "gateway"),
        ({"gateway": "eu-1", "selector": "tier=eu"}, "selector"),
        ({"selector": "tier in (eu)"}, "selector"),
        ({"provider": "p\x00"}, "provider"),
        ({"ticket": "x" * 201}, "ticket"),
    ],
)
def test_bad_input_names_its_field_and_writes_nothing(fields: dict[str, Any], field: str) -> None:
    revision = Revision.objects.get(id=1).value
    with pytest.raises(InvalidInput) as caught:
        force(**fields)
    assert field in [error["field"] for error in caught.value.errors]
    assert not Override.objects.exists()
    assert Revision.objects.get(id=1).value == revision


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        force(reason="", mode="Open", expires_in=None)
    assert {e["field"] for e in caught.value.errors} == {"reason", "mode", "expires_in"}


def test_an_unknown_circuit_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(InvalidInput, match="nearest: openai"):
        force(provider="openia")


def test_any_covers_circuits_that_are_seen_later() -> None:
    assert force(provider="").provider == ""


def test_a_circuit_without_a_region_is_named_by_a_dash() -> None:
    assert force(region="-").region == "-"
    with pytest.raises(InvalidInput):
        force(provider="anthropic", region="-")


def test_the_same_match_is_a_conflict_that_names_the_holder() -> None:
    row = force()
    with pytest.raises(Conflict, match="by ann for another 1 h: provider is failing") as caught:
        force(BEN, mode="ForceClosed", expires_in=timedelta(minutes=5))
    assert caught.value.data["current"]["name"] == row.name
    assert caught.value.data["current"]["remaining_s"] == 3600
    assert Override.objects.count() == 1


def test_a_narrower_match_is_no_conflict() -> None:
    force()
    force(model="gpt-4o")
    assert Override.objects.filter(ended_at=None).count() == 2


def test_the_holder_can_be_replaced_in_one_step() -> None:
    old = force()
    new = force(BEN, mode="ForceClosed", expires_in=timedelta(minutes=5), replace=old.name)
    old.refresh_from_db()
    assert (old.end_cause, old.ended_by) == ("Replaced", "ben")
    assert old.resource_version == new.resource_version


def test_what_is_to_be_replaced_is_of_the_same_match_or_has_ended() -> None:
    other = force(model="gpt-4o")
    for wrong in (other.name, "nobody"):
        with pytest.raises(InvalidInput, match=wrong):
            force(BEN, replace=wrong)
    assert Override.objects.filter(ended_at=None).count() == 1
    overrides.release(actor=ANN, name=other.name, now=NOW)
    assert force(BEN, replace=other.name).ended_at is None


def test_an_expired_row_does_not_stand_in_the_way() -> None:
    old = force()
    later = NOW + HOUR
    new = force(BEN, now=later)
    old.refresh_from_db()
    assert (old.end_cause, old.ended_by, old.ended_at) == ("Expired", "system", later)
    assert new.created_at == later
    expired = AuditEntry.objects.get(action="override_expired")
    assert (expired.actor, expired.object_name) == ("system", old.name)


def test_the_database_itself_refuses_two_on_one_match() -> None:
    row = force()
    twin = Override.objects.get(id=row.pk)
    twin.pk, twin.name = None, "twin"
    twin.uid = "0193f1d2-0000-7000-8000-000000000000"
    with pytest.raises(IntegrityError, match="override_one_active_a_match"):
        twin.save(force_insert=True)


def test_a_dry_run_meets_the_conflict_and_writes_nothing() -> None:
    before = generations()
    assert force(dry_run=True).mode == "ForceOpen"
    assert not Override.objects.exists()
    assert generations() == before
    force()
    with pytest.raises(Conflict):
        force(BEN, dry_run=True)


@pytest.mark.parametrize("role", [Role.VIEWER])
def test_a_viewer_may_do_nothing_of_it(role: Role) -> None:
    row = force()
    viewer = Actor("vic", "person", role)
    with pytest.raises(Forbidden):
        force(viewer, model="gpt-4o")
    with pytest.raises(Forbidden):
        overrides.extend(actor=viewer, name=row.name, expires_in=HOUR, now=NOW)
    with pytest.raises(Forbidden):
        overrides.release(actor=viewer, name=row.name, now=NOW)
    with pytest.raises(Forbidden):
        overrides.release_mine(actor=viewer, now=NOW)
    row.refresh_from_db()
    assert row.ended_at is None


def test_extending_is_a_new_generation_with_its_own_audit() -> None:
    row = force()
    uid = row.uid
    later = NOW + timedelta(minutes=30)
    row = overrides.extend(
        actor=BEN, name=row.name, expires_in=2 * HOUR, reason="still failing", now=later
    )
    assert (row.uid, row.generation, row.expires_at) == (uid, 2, later + 2 * HOUR)
    assert (row.created_by, row.updated_by, row.updated_at) == ("ann", "ben", later)
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.actor, entry.reason) == ("extend", "ben", "still failing")
    assert entry.before is not None
    assert entry.before["generation"] == 1


def test_what_has_ended_cannot_be_extended() -> None:
    row = force()
    with pytest.raises(Conflict, match="has ended"):
        overrides.extend(actor=ANN, name=row.name, expires_in=HOUR, now=NOW + HOUR)
    with pytest.raises(NotFound):
        overrides.extend(actor=ANN, name="nothing", expires_in=HOUR, now=NOW)


def test_extending_has_the_same_bounds() -> None:
    row = force()
    with pytest.raises(InvalidInput, match="at most 1 d"):
        overrides.extend(actor=ANN, name=row.name, expires_in=25 * HOUR, now=NOW)


def test_a_write_from_an_old_version_changes_nothing() -> None:
    row = force()
    seen = row.resource_version
    overrides.extend(actor=BEN, name=row.name, expires_in=2 * HOUR, now=NOW)
    with pytest.raises(Conflict, match="changed by ben"):
        overrides.release(actor=ANN, name=row.name, now=NOW, expected_version=seen)
    with pytest.raises(Conflict, match="changed by ben"):
        overrides.extend(actor=ANN, name=row.name, expires_in=HOUR, now=NOW, expected_version=seen)
    row.refresh_from_db()
    assert row.ended_at is None
    assert row.expires_at == NOW + 2 * HOUR


def test_released_leaves_the_snapshot_and_stays_readable() -> None:
    before = GatewayConfig.objects.get(gateway__name="eu-1").hash
    row = force()
    row = overrides.release(actor=BEN, name=row.name, reason="recovered", now=NOW)
    assert (row.ended_at, row.ended_by, row.end_cause) == (NOW, "ben", "Released")
    assert GatewayConfig.objects.get(gateway__name="eu-1").hash == before
    again = overrides.release(actor=ANN, name=row.name, now=NOW + HOUR)
    assert (again.ended_by, again.ended_at) == ("ben", NOW)
    assert AuditEntry.objects.filter(action="release").count() == 1


def test_release_mine_leaves_what_others_forced() -> None:
    mine = [force(), force(model="gpt-4o")]
    other = force(BEN, provider="anthropic")
    released = overrides.release_mine(actor=ANN, now=NOW)
    assert {row.name for row in released} == {row.name for row in mine}
    other.refresh_from_db()
    assert other.ended_at is None


def test_expired_rows_are_ended_once_by_the_system() -> None:
    row = force()
    assert overrides.end_expired(NOW + HOUR - timedelta(seconds=1)) == []
    before = generations()
    assert overrides.end_expired(NOW + HOUR) == [row.name]
    assert overrides.end_expired(NOW + HOUR) == []
    assert generations()["eu-1"] == before["eu-1"] + 1
    assert AuditEntry.objects.filter(action="override_expired", actor="system").count() == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entry SET actor = 'nobody'",
        "DELETE FROM audit_entry",
        "TRUNCATE audit_entry",
    ],
)
def test_the_database_refuses_to_change_the_audit(statement: str) -> None:
    force()
    with (
        pytest.raises(Exception, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert AuditEntry.objects.filter(actor="ann").exists()

"""``manage.py bootstrap`` makes an installation usable, once, and heals what is missing."""

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command

from controlplane.actions import tokens
from controlplane.actions.gateways import digest
from controlplane.models import (
    AuditEntry,
    BreakerPolicy,
    GatewayConfig,
    GatewayToken,
    Person,
    RetryBudget,
    Role,
    Route,
    ServiceToken,
)
from controlplane.wire.desired import Spec
from tests import builders

pytestmark = pytest.mark.django_db


@pytest.fixture
def var(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings.VAR_DIR = tmp_path / "var"
    monkeypatch.delenv("DEMO", raising=False)
    return tmp_path / "var"


def run(var: Path) -> dict[str, str]:
    call_command("bootstrap", verbosity=0)
    return json.loads((var / "credentials.json").read_text())


def test_everything_that_is_needed_is_made(var: Path) -> None:
    found = run(var)
    assert stat.S_IMODE((var / "credentials.json").stat().st_mode) == 0o600
    admin = Person.objects.get(username=found["admin_user"])
    assert admin.check_password(found["admin_password"])
    assert admin.role == Role.ADMIN
    operator = tokens.valid(found["operator_token"], builders.now())
    viewer = tokens.valid(found["viewer_token"], builders.now())
    assert operator is not None
    assert viewer is not None
    assert (operator.role, viewer.role) == (Role.OPERATOR, Role.VIEWER)
    token = GatewayToken.objects.get(sha256=digest(found["gateway_token"]))
    assert token.gateway.name == found["gateway_name"] == "demo"
    config = GatewayConfig.objects.get(gateway__name="demo")
    spec = msgspec.json.decode(config.spec, type=Spec)
    assert {item.level for item in spec.budgets} == {"system", "tenant", "circuit"}
    assert [item.name for item in spec.policies] == ["default"]


def test_a_second_run_changes_nothing(var: Path) -> None:
    first = run(var)
    entries = AuditEntry.objects.count()
    generation = GatewayConfig.objects.get().generation
    assert run(var) == first
    assert AuditEntry.objects.count() == entries
    assert GatewayConfig.objects.get().generation == generation


def test_what_a_person_changed_is_kept(var: Path) -> None:
    found = run(var)
    admin = Person.objects.get(username=found["admin_user"])
    admin.set_password("changed-by-hand-1")
    admin.save()
    BreakerPolicy.objects.update(spec={"consecutive_failures": 9})
    run(var)
    admin.refresh_from_db()
    assert admin.check_password("changed-by-hand-1")
    assert BreakerPolicy.objects.get().spec["consecutive_failures"] == 9
    assert RetryBudget.objects.count() == 3


def test_a_lost_file_gives_new_secrets_and_ends_the_old(var: Path) -> None:
    old = run(var)
    (var / "credentials.json").unlink()
    new = run(var)
    assert new["operator_token"] != old["operator_token"]
    assert tokens.valid(old["operator_token"], builders.now()) is None
    assert GatewayToken.objects.get(sha256=digest(old["gateway_token"])).revoked_at is not None
    assert Person.objects.get(username=new["admin_user"]).check_password(new["admin_password"])


def test_an_emptied_database_gets_the_same_secrets_back(var: Path) -> None:
    found = run(var)
    GatewayToken.objects.all().delete()
    ServiceToken.objects.all().delete()
    Person.objects.all().delete()
    assert run(var) == found
    assert GatewayToken.objects.filter(sha256=digest(found["gateway_token"])).exists()
    assert Person.objects.get().check_password(found["admin_password"])


def test_a_files_routes_are_recorded_once(var: Path) -> None:
    file = Path(__file__).parents[2] / "gateway" / "demo.toml"
    call_command("bootstrap", routes=file, verbosity=0)
    said = tomllib.loads(file.read_text())["routes"]
    spec = msgspec.json.decode(GatewayConfig.objects.get().spec, type=Spec)
    assert {
        route.name: [(t.provider, t.model, t.region, t.approved_by) for t in route.targets]
        for route in spec.routes
    } == {
        route["name"]: [
            (t["provider"], t["model"], t.get("region", ""), t["approved_by"])
            for t in route["targets"]
        ]
        for route in said
    }
    Route.objects.filter(name="drafts").delete()
    call_command("bootstrap", routes=file, verbosity=0)
    assert Route.objects.count() == len(said) - 1, "what a person removed stays removed"


@pytest.mark.parametrize("words", ["routes = 3", "[[routes]]\nname = 'a'", "[", None])
def test_a_file_without_readable_routes_is_named(var: Path, tmp_path: Path, words: str) -> None:
    file = tmp_path / "gateway.toml"
    if words is not None:
        file.write_text(words)
    with pytest.raises(CommandError, match=r"gateway.toml: its routes cannot be read"):
        call_command("bootstrap", routes=file, verbosity=0)


def test_without_the_demo_there_is_no_gateway_address(
    var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO", "0")
    assert run(var)["gateway_url"] is None


def test_a_damaged_file_is_not_overwritten(var: Path) -> None:
    var.mkdir()
    (var / "credentials.json").write_text("{")
    with pytest.raises(CommandError, match="Move it away"):
        run(var)
    assert (var / "credentials.json").read_text() == "{"

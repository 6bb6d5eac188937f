"""The pages of objects: as the API says, each write under its version, nothing executed."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
import yaml
from django.test import Client

from controlplane.actions import budgets, policies, routes
from controlplane.actions.actor import Actor
from controlplane.models import BreakerPolicy, Probe, RetryBudget, Role
from tests import builders

pytestmark = pytest.mark.django_db
ADA = Actor("ada", "person", Role.ADMIN)
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
TABS = ("status", "spec", "conditions", "events", "yaml")


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(builders.person("looker", Role.VIEWER))
    return client


def policy(name: str = "slow", **spec: object) -> BreakerPolicy:
    return policies.create(actor=ADA, name=name, spec=spec, now=builders.now(), reason="first")


def everything() -> dict[str, str]:
    """One object of each kind: its page's address, and its path in the API."""
    gateway = builders.gateway("chat")
    one = builders.instance(gateway, "chat/0")
    builders.circuit_state(one, builders.circuit(), "Open")
    hand = builders.override(provider="openai")
    builders.delivery(one, hand, "Rejected", reason="LocalFloorViolated")
    policy()
    budgets.create(actor=ADA, name="b", level="circuit", spec={}, now=builders.now())
    target = {"provider": "openai", "model": "gpt-4o", "region": "us-east"}
    routes.create(actor=ADA, name="r", spec={"targets": [target]}, now=builders.now())
    return {
        "/circuits/openai%2Fgpt-4o%40us-east": "/circuits/openai/gpt-4o@us-east",
        "/gateways/chat": "/gateways/chat",
        f"/overrides/{hand.name}": f"/overrides/{hand.name}",
        "/policies/slow": "/policies/slow",
        "/budgets/b": "/budgets/b",
        "/routes/r": "/routes/r",
    }


def test_every_kind_has_every_tab_and_says_what_the_api_says(viewer: Client) -> None:
    for page, path in everything().items():
        text = viewer.get(page).content.decode()
        for tab in TABS:
            assert f'id="{tab}"' in text, (page, tab)
        shown = text.partition('id="as-object-yaml" tabindex="0">')[2].partition("</pre>")[0]
        for entity, sign in (("&#x27;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"')):
            shown = shown.replace(entity, sign)
        found = yaml.safe_load(shown.replace("&amp;", "&"))
        said = json.loads(viewer.get(f"/api/v1{path}").content)
        assert _timeless(found) == _timeless(said), page
        for condition in said["status"]["conditions"]:
            assert condition["message"] in text.replace("&#x27;", "'"), (page, condition)


def _timeless(value: object) -> object:
    """Without what changes by the mere passing of time."""
    moving = {"silentSeconds", "remainingSeconds"}
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in moving}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def test_a_hostile_text_is_text_on_every_objects_page(oncall: Client) -> None:
    pages = everything()
    policies.update(
        actor=Actor(HOSTILE, "person", Role.OPERATOR), name="slow", spec={"open_seconds": 20.0},
        now=builders.now(), reason=HOSTILE,
        expected_version=BreakerPolicy.objects.get().resource_version,
    )  # fmt: skip
    budgets.create(
        actor=ADA, name="t", level="tenant", spec={}, now=builders.now(), reason=HOSTILE,
        match={"tenant": HOSTILE, "selector": "tier=x"},
    )  # fmt: skip
    builders.override(
        "ObserveOnly", gateway="chat", reason=HOSTILE, created_by=HOSTILE, ticket=HOSTILE
    )
    for page in [*pages, "/budgets/t", "/policies", "/routes", "/budgets"]:
        text = oncall.get(page).content.decode()
        assert "<script>alert" not in text, page
        assert "<img src=x" not in text, page
    assert "&lt;script&gt;" in oncall.get("/budgets/t").content.decode()


def test_what_is_not_there_is_not_found(viewer: Client) -> None:
    for page in ("/gateways/x", "/policies/x", "/routes/x", "/budgets/x", "/probes/x"):
        assert viewer.get(page).status_code == 404, page


def test_a_policy_is_made_edited_rolled_back_and_removed(oncall: Client) -> None:
    form = {"name": "p", "failure_ratio": "40", "slow_ratio": "", "reason": "tighter"}
    assert oncall.post("/policies/new", form).headers["Location"] == "/policies/p#status"
    row = BreakerPolicy.objects.get()
    assert (row.spec["failure_ratio"], row.managers) == (0.4, {"failure_ratio": "oncall"})
    edit = {"version": row.resource_version, "consecutive_failures": "", "rate_limits_count": "no"}
    assert oncall.post("/policies/p", edit).status_code == 302
    row.refresh_from_db()
    assert row.spec["consecutive_failures"] is None
    assert row.spec["rate_limits_count"] is False
    assert row.spec["failure_ratio"] == 0.4  # what was not sent is not changed
    back = {"version": row.resource_version, "generation": "1", "reason": "it was better"}
    assert oncall.post("/policies/p/rollback", back).status_code == 302
    row.refresh_from_db()
    assert (row.generation, row.spec["consecutive_failures"]) == (3, 5)
    assert oncall.post("/policies/p/remove", {"version": "1"}).status_code == 409
    gone = oncall.post("/policies/p/remove", {"version": row.resource_version, "reason": "x"})
    assert gone.headers["Location"] == "/policies"
    assert not BreakerPolicy.objects.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"failure_ratio": "x"}, "write a number"),
        ({"failure_ratio": "nan"}, "write a number"),
        ({"failure_ratio": "200"}, "from 0.001 to 1"),
        ({"minimum_calls": "1.5"}, "write a whole number"),
        ({"minimum_calls": ""}, "write a number"),
        ({"open_seconds": "90", "max_open_seconds": "60"}, "at least open_seconds"),
        ({"rate_limits_count": "maybe"}, "choose yes or no"),
        ({"open_seconds": "1_0"}, "write a number"),
    ],
)
def test_a_policy_with_an_odd_number_is_refused(
    oncall: Client, change: dict[str, str], words: str
) -> None:
    row = policy()
    answer = oncall.post("/policies/slow", change | {"version": row.resource_version})
    assert answer.status_code == 422
    assert words in answer.content.decode()
    row.refresh_from_db()
    assert row.generation == 1


def test_two_edits_of_a_policy_stand_side_by_side(oncall: Client) -> None:
    row = policy()
    stale = row.resource_version
    policies.update(
        actor=ADA, name="slow", spec={"open_seconds": 25.0}, now=builders.now(),
        expected_version=stale,
    )  # fmt: skip
    answer = oncall.post("/policies/slow", {"version": stale, "open_seconds": "15"})
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "Somebody changed this while you edited it" in text
    assert "<b>25</b>" in text
    assert "<b>15</b>" in text
    row.refresh_from_db()
    assert f'name="version" value="{row.resource_version}"' in text
    assert row.spec["open_seconds"] == 25


def test_cost_ceilings_are_pounds_as_text(oncall: Client) -> None:
    row = builders.retry_budget("b")
    form = {"version": row.resource_version, "cost": "£12.50", "cost_task": "0.40"}
    assert oncall.post("/budgets/b", form).status_code == 302
    row.refresh_from_db()
    assert (row.spec["max_cost_gbp"], row.spec["max_cost_gbp_per_task"]) == ("12.50", "0.40")
    odd = oncall.post("/budgets/b", {"version": row.resource_version, "cost": "a lot"})
    assert odd.status_code == 422
    assert "write pounds as text" in odd.content.decode()
    assert "£12.50 in 24 h" in oncall.get("/budgets").content.decode()


def test_a_new_budget_has_a_level_and_a_match(oncall: Client) -> None:
    builders.circuit()
    form = {"name": "eu", "level": "circuit", "provider": "opnai", "ratio": "5"}
    refused = oncall.post("/budgets/new", form)
    assert refused.status_code == 422
    assert "nearest: openai" in refused.content.decode()
    assert oncall.post("/budgets/new", form | {"provider": "openai"}).status_code == 302
    row = RetryBudget.objects.get()
    assert (row.provider, row.spec["ratio_per_mille"]) == ("openai", 50)
    assert oncall.post("/budgets/new", form | {"provider": "openai"}).status_code == 409


def test_what_a_viewer_may_not_do_is_not_offered_and_says_why(viewer: Client) -> None:
    pages = everything()
    for page in pages:
        text = viewer.get(page).content.decode()
        assert "takes operator" in text or "operator or an admin" in text or page == "/routes/r"
    text = viewer.get("/policies/slow").content.decode()
    form = text.partition('id="edit"')[2].partition("</form>")[0]
    controls = [part.partition(">")[0] for part in re.split(r"<(?:input|select|button)", form)[1:]]
    offered = [part for part in controls if "disabled" not in part and "hidden" not in part]
    assert (len(controls) > 15, offered) == (True, [])
    assert "Remove slow" not in text
    row = BreakerPolicy.objects.get()
    form = {"version": row.resource_version, "open_seconds": "20"}
    assert viewer.post("/policies/slow", form).status_code == 403
    for address in ("/policies/slow/remove", "/policies/slow/rollback", "/policies/new"):
        assert viewer.post(
            address, form | {"name": "q", "generation": "1", "reason": "x"}
        ).status_code in (403, 422)
    row.refresh_from_db()
    assert row.generation == 1
    assert BreakerPolicy.objects.count() == 1


def test_probe_now_takes_a_reason_and_is_followed(oncall: Client, viewer: Client) -> None:
    builders.circuit()
    scope = {"provider": "openai", "model": "gpt-4o", "region": "us-east"}
    client = Client()
    client.force_login(builders.person("op2"))
    assert client.get("/probes/new", scope).status_code == 200
    refused = client.post("/probes/new", scope | {"reason": " "})
    assert refused.status_code == 422
    assert "reason: required" in refused.content.decode()
    made = client.post("/probes/new", scope | {"reason": "they say it is fixed"})
    row = Probe.objects.get()
    assert made.headers["Location"] == f"/probes/{row.name}"
    assert (row.provider, row.region) == ("openai", "us-east")
    assert "they say it is fixed" in client.get(f"/probes/{row.name}").content.decode()
    assert viewer.post("/probes/new", scope | {"reason": "x"}).status_code == 403


def test_the_events_of_an_object_are_what_was_written_and_said(viewer: Client) -> None:
    gateway = builders.gateway("chat")
    row = policy()
    members = [builders.instance(gateway, f"chat/{n}") for n in range(3)]
    for place, one in enumerate(members):
        builders.delivery(
            one, row, "Applied" if place else "Rejected", kind="BreakerPolicy",  # type: ignore[arg-type]
            reason="" if place else "UnknownTarget",
            acknowledged_at=row.updated_at + timedelta(milliseconds=200 * place),
        )  # fmt: skip
    text = viewer.get("/policies/slow").content.decode()
    assert "2 instances" in text
    assert "after 0.2 s to 0.4 s" in text
    assert "UnknownTarget" in text
    assert "create" in text

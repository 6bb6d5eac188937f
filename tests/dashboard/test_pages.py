"""Every page: who gets in, what is escaped, what a refused write says."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from django.test import Client
from django.utils.html import escape

from controlplane.actions import routes
from controlplane.actions.actor import SYSTEM
from controlplane.models import AuditEntry, Override, RetryBudget, Role
from dashboard.templatetags.words import outside
from tests import builders

pytestmark = pytest.mark.django_db

PAGES = ["/", "/circuits", "/gateways", "/overrides", "/overrides/new", "/budgets", "/audit"]
PAGES += ["/providers", "/telemetry"]
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
FORCE = {
    "mode": "ForceOpen",
    "provider": "openai",
    "minutes": "30",
    "reason": "provider browns out",
}


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(builders.person("looker", Role.VIEWER))
    return client


@pytest.mark.parametrize("page", PAGES)
def test_a_stranger_is_sent_to_log_in(client: Client, page: str) -> None:
    answer = client.get(page)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/log-in?next=")


@pytest.mark.parametrize("page", PAGES)
def test_a_viewer_may_look_at_an_empty_product(viewer: Client, page: str) -> None:
    assert viewer.get(page).status_code == 200


@pytest.mark.parametrize("page", PAGES)
def test_pages_forbid_scripts_and_styles_in_the_page(viewer: Client, page: str) -> None:
    answer = viewer.get(page)
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    text = answer.content.decode()
    assert " style=" not in text
    assert "<style" not in text
    assert "<script>" not in text
    assert " onclick=" not in text


def test_an_empty_product_says_what_is_missing_and_how_it_comes(oncall: Client) -> None:
    wall = oncall.get("/").content.decode()
    assert "switchgear create gateway NAME" in wall
    circuits = oncall.get("/circuits").content.decode()
    assert "No circuit is known yet." in circuits
    assert "Nothing matches" not in circuits
    assert "Nothing matches “o3”" in oncall.get("/circuits?q=o3").content.decode()
    incident = oncall.get("/incident").content.decode()
    assert "Nothing is known of this time" in incident
    assert "Nothing was open" not in incident
    assert "0/s" not in incident


def test_hostile_names_are_text_on_every_page(oncall: Client) -> None:
    gateway = builders.gateway("chat", labels={"a": HOSTILE})
    one = builders.instance(gateway, HOSTILE, version=HOSTILE, spool={"dropped": 1})
    # A provider's name cannot hold the slash that ends it.
    provider = HOSTILE.replace("/", "")
    circuit = builders.circuit(provider, HOSTILE, HOSTILE)
    builders.circuit_state(one, circuit, "Open", cause=HOSTILE, keys_note=HOSTILE)
    builders.transition(one, circuit, "Open", cause=HOSTILE)
    hand = builders.override(provider=provider, reason=HOSTILE, created_by=HOSTILE)
    builders.delivery(one, hand, "Rejected", reason=HOSTILE, message=HOSTILE)
    builders.budget_state(one, f"tenant/{HOSTILE}")
    builders.retry_budget("b", "tenant", tenant=HOSTILE)
    builders.audit_entry(actor=HOSTILE, reason=HOSTILE, after={HOSTILE: HOSTILE})
    name = quote(builders.name_of(circuit), safe="")
    for page in [*PAGES, f"/circuits/{name}", f"/overrides/{hand.name}", "/budgets/b"]:
        text = oncall.get(page).content.decode()
        assert "&lt;script&gt;" in text or page == "/overrides/new", page
        assert "<script>alert" not in text, page
        assert "<img src=x" not in text, page


def test_an_address_that_may_not_be_linked_to_is_text_whatever_the_row_holds() -> None:
    assert outside("javascript:alert(1)", "status <b>") == "status &lt;b&gt;"
    link = outside('https://a.example/?"><script>', "status")
    assert link == (
        '<a class="outside" href="https://a.example/?&quot;&gt;&lt;script&gt;" target="_blank"'
        ' rel="noopener noreferrer">status</a>'
    )


def test_an_admin_records_a_providers_status_page_and_it_stands_where_it_is_needed(
    client: Client,
) -> None:
    builders.circuit()
    client.force_login(builders.person("ada", Role.ADMIN))
    form = {"status_url": "https://status.example.com", "version": "", "reason": "on call"}
    assert client.post("/providers/openai", form).headers["Location"] == "/providers"
    for page in ("/providers", "/circuits/openai/gpt-4o@us-east", "/overrides/new?provider=openai"):
        assert (
            'href="https://status.example.com" target="_blank"' in client.get(page).content.decode()
        )
    stale = client.post("/providers/openai", form | {"status_url": "https://other.example"})
    assert stale.status_code == 409
    assert "Yours, not saved" in stale.content.decode()
    odd = client.post("/providers/openai", form | {"status_url": "ftp://a.example", "version": "1"})
    assert odd.status_code == 422
    assert "begins with https" in odd.content.decode()
    assert client.get("/providers/opnai").status_code == 404


def test_a_viewer_sees_that_a_provider_takes_an_admin(viewer: Client) -> None:
    builders.circuit()
    text = viewer.get("/providers/openai").content.decode()
    assert "An admin can change" in text
    assert '<button class="button strong" disabled>' in text
    assert viewer.post("/providers/openai", {"status_url": "https://a.example"}).status_code == 403


@pytest.mark.parametrize("form", ["openai/gpt-4o@us-east", "openai%2Fgpt-4o%40us-east"])
def test_a_circuit_is_found_by_its_name_plain_or_encoded(viewer: Client, form: str) -> None:
    builders.circuit()
    assert viewer.get(f"/circuits/{form}").status_code == 200


@pytest.mark.parametrize("name", ["openai/none", "nothing", "%00", "a/b@"])
def test_an_unknown_circuit_is_not_found(viewer: Client, name: str) -> None:
    answer = viewer.get(f"/circuits/{name}")
    assert answer.status_code == 404
    assert "provider/model@region" in answer.content.decode()


def test_the_circuit_page_shows_desired_and_observed_of_each_instance(viewer: Client) -> None:
    gateway = builders.gateway()
    obeys, refuses = builders.instance(gateway, "chat/obeys"), builders.instance(gateway, "chat/no")
    silent = builders.instance(gateway, "chat/silent", last_seen_at=builders.ago(90))
    circuit = builders.circuit()
    hand = builders.override(provider="openai")
    builders.circuit_state(obeys, circuit, "Open", mode="ForceOpen", override_uid=str(hand.uid))
    builders.delivery(obeys, hand)
    builders.circuit_state(refuses, circuit)
    builders.delivery(refuses, hand, "Rejected", reason="LocalFloorViolated")
    builders.circuit_state(silent, circuit)
    text = viewer.get("/circuits/openai/gpt-4o@us-east").content.decode()
    assert "LocalFloorViolated" in text
    assert "unknown (was Closed at" in text
    assert text.index("chat/no") < text.index("chat/silent") < text.index("chat/obeys")


def test_forcing_leaves_an_override_and_an_audit_entry(oncall: Client) -> None:
    builders.circuit()
    answer = oncall.post("/overrides/new", FORCE)
    row = Override.objects.get()
    assert answer.status_code == 302
    assert answer.headers["Location"] == f"/overrides/{row.name}"
    assert (row.provider, row.model, row.created_by) == ("openai", "", "oncall")
    assert AuditEntry.objects.get(action="force").reason == "provider browns out"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reason": " "}, "reason: required"),
        ({"minutes": "9999"}, "at most"),
        ({"minutes": "x"}, "expires_in: required"),
        ({"provider": "opnai"}, "nearest: openai"),
        ({"reason": "a\x00b"}, "NUL"),
        ({"mode": "Explode"}, "mode: write one of"),
    ],
)
def test_a_faulty_form_comes_back_with_what_was_typed(
    oncall: Client, change: dict[str, str], words: str
) -> None:
    builders.circuit()
    answer = oncall.post("/overrides/new", FORCE | change)
    assert answer.status_code == 422
    text = answer.content.decode()
    assert words in text
    assert (FORCE | change)["reason"].strip().replace("\x00", "") in text.replace("\x00", "")
    assert not Override.objects.exists()


def test_a_held_match_names_its_holder(oncall: Client) -> None:
    builders.circuit()
    held = builders.override(provider="openai", created_by="somebody", reason="their reason")
    answer = oncall.post("/overrides/new", FORCE)
    assert answer.status_code == 409
    text = answer.content.decode()
    assert "somebody" in text
    assert "their reason" in text
    assert f'value="{held.name}"' in text
    oncall.post("/overrides/new", FORCE | {"replace": held.name})
    held.refresh_from_db()
    assert held.end_cause == "Replaced"


def test_a_viewer_sees_the_button_disabled_and_cannot_force(viewer: Client) -> None:
    builders.circuit()
    text = viewer.get("/overrides/new?provider=openai").content.decode()
    assert "You are a viewer" in text
    assert 'disabled aria-describedby="takes-operator"' in text
    assert viewer.post("/overrides/new", FORCE).status_code == 403
    assert not Override.objects.exists()


def test_the_dialog_says_what_it_would_stop(oncall: Client) -> None:
    gateway, other = builders.gateway("chat"), builders.gateway("batch")
    circuit = builders.circuit()
    minute = builders.now()
    builders.rollup(gateway, circuit, minute, attempts=120, cost_gbp="0.5", wasted_gbp="0.2")
    builders.rollup(other, circuit, minute, attempts=60, cost_gbp="9")
    text = oncall.get("/overrides/new?provider=openai&gateway=chat").content.decode()
    assert "<b>2.0/s</b>" in text
    assert "50p/min" in text
    assert "20p/min of it is wasted" in text


def test_the_dialog_says_who_falls_back_who_fails_and_how_slow_it_is(oncall: Client) -> None:
    gateway, now = builders.gateway("chat"), builders.now()
    one = builders.instance(gateway, "chat/0")
    target, other = builders.circuit(), builders.circuit("azure-openai", "gpt-4o", "uk")
    builders.circuit_state(one, target)
    builders.circuit_state(one, other, "Open")
    as_target = {"provider": "openai", "model": "gpt-4o", "region": "us-east"}
    as_other = {"provider": "azure-openai", "model": "gpt-4o", "region": "uk"}
    for name, targets in (("alone", [as_target]), ("both", [as_target, as_other])):
        routes.create(actor=SYSTEM, name=name, spec={"targets": targets}, now=now)
    for route, count in (("alone", 60), ("both", 30), ("of-its-file", 6)):
        builders.attempts(one, target, count, route=route, occurred_at=builders.ago(5))
    builders.attempts(one, target, 600, route="alone", occurred_at=builders.ago(90))
    builders.latency(gateway, target, {400: 90, 20_000: 10})
    text = oncall.get("/overrides/new?provider=openai").content.decode()
    for words in (
        "its calls fail", "falls back, but it is Open too", "its gateway's own file decides",
        "1.0/s of calls would fail:</b> alone", "On 1 instance", "chat/chat/0", "slow</b>",
    ):  # fmt: skip
        assert words.replace("'", "&#x27;") in text or words in text, words
    dry = {"mode": "ForceOpen", "provider": "openai", "reason": "x", "expiresIn": "30m"}
    answer = oncall.post("/api/v1/overrides?dryRun=1", dry, content_type="application/json")
    said = answer.json()["dryRun"]
    assert [(r["name"], r["callsPerSecond"], r["recorded"]) for r in said["routes"]] == [
        ("alone", 1.0, True), ("both", 0.5, True), ("of-its-file", 0.1, False),
    ]  # fmt: skip
    assert said["latencyMs"]["p50"] == pytest.approx(400, rel=0.03)
    assert not Override.objects.exists()


def test_a_route_without_fallback_is_named_though_no_call_came(oncall: Client) -> None:
    builders.instance(builders.gateway())
    builders.circuit()
    spec = {"targets": [{"provider": "openai", "model": "gpt-4o", "region": "us-east"}]}
    routes.create(actor=SYSTEM, name="alone", spec=spec, now=builders.now())
    text = oncall.get("/overrides/new?provider=openai").content.decode()
    assert "Every call would fail, though none came in the last minute:</b> alone" in text
    assert "0/s of calls" not in text


def test_the_dialog_forces_by_label_and_spells_itself(oncall: Client) -> None:
    builders.circuit()
    builders.gateway("chat", labels={"tier": "chat"})
    form = FORCE | {"where": "selector:tier=chat", "reason": "it's slow"}
    text = oncall.post("/overrides/typed", form).content.decode()
    command = (
        "switchgear force-open openai --selector=tier=chat --reason='it'\"'\"'s slow' --for=30m"
    )
    assert escape(command) in text
    assert not Override.objects.exists()
    oncall.post("/overrides/new", form)
    row = Override.objects.get()
    assert (row.gateway, row.selector) == ("", "tier=chat")


def test_releasing_and_extending(oncall: Client) -> None:
    hand = builders.override(provider="openai")
    before = hand.expires_at
    oncall.post(
        f"/overrides/{hand.name}/extend", {"minutes": "240", "version": hand.resource_version}
    )
    hand.refresh_from_db()
    assert hand.expires_at > before
    stale = oncall.post(f"/overrides/{hand.name}/extend", {"minutes": "60", "version": "999"})
    assert stale.status_code == 409
    oncall.post(f"/overrides/{hand.name}/release")
    hand.refresh_from_db()
    assert (hand.end_cause, hand.ended_by) == ("Released", "oncall")


def test_releasing_all_that_i_forced_leaves_the_others(oncall: Client) -> None:
    mine = builders.override(provider="openai", created_by="oncall")
    theirs = builders.override(provider="google", created_by="somebody")
    oncall.post("/overrides/release-mine")
    mine.refresh_from_db()
    theirs.refresh_from_db()
    assert mine.ended_at is not None
    assert theirs.ended_at is None


BUDGET = {"ratio": "8", "min": "0.2", "max": "", "burst": "10", "reason": "less"}


def test_a_budget_is_saved(oncall: Client) -> None:
    row = builders.retry_budget()
    answer = oncall.post("/budgets/default", BUDGET | {"version": row.resource_version})
    assert answer.status_code == 302
    row.refresh_from_db()
    assert row.spec["ratio_per_mille"] == 80
    assert row.spec["max_per_second"] is None
    assert row.generation == 2


def test_a_budget_that_somebody_else_changed_is_not_overwritten(oncall: Client) -> None:
    row = builders.retry_budget()
    version = row.resource_version
    oncall.post("/budgets/default", BUDGET | {"version": version})
    answer = oncall.post("/budgets/default", BUDGET | {"version": version, "ratio": "50"})
    assert answer.status_code == 409
    text = answer.content.decode()
    assert "Somebody changed this while you edited it" in text
    assert "Nothing of yours was saved" in text
    assert RetryBudget.objects.get().spec["ratio_per_mille"] == 80


@pytest.mark.parametrize(
    ("field", "value"),
    [("ratio", "x"), ("ratio", "nan"), ("ratio", "-3"), ("burst", "1.5"), ("min", "1e999"),
     ("ratio", "8.123"), ("ratio", "9e99")],
)  # fmt: skip
def test_a_budget_with_an_odd_number_is_refused(oncall: Client, field: str, value: str) -> None:
    row = builders.retry_budget()
    form = BUDGET | {"version": row.resource_version, field: value}
    assert oncall.post("/budgets/default", form).status_code == 422
    row.refresh_from_db()
    assert row.generation == 1


def test_writes_need_the_forms_token() -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(builders.person())
    refused = strict.post("/overrides/new", FORCE)
    assert refused.status_code == 403
    assert "This form is too old" in refused.content.decode()
    assert strict.post("/log-out").status_code == 403


def test_log_in_and_out(client: Client) -> None:
    builders.person("oncall")
    form = {"username": "oncall", "password": builders.PASSWORD}
    answer = client.post("/log-in?next=/audit", form)
    assert answer.headers["Location"] == "/audit"
    assert client.get("/audit").status_code == 200
    client.post("/log-out")
    assert client.get("/audit").status_code == 302


@pytest.mark.parametrize(
    "target", ["https://elsewhere.example/", "//elsewhere.example", "javascript:alert(1)"]
)
def test_log_in_never_leads_elsewhere(client: Client, target: str) -> None:
    builders.person("oncall")
    form = {"username": "oncall", "password": builders.PASSWORD, "next": target}
    assert client.post("/log-in", form).headers["Location"] == "/"


def test_a_wrong_name_and_a_wrong_password_read_the_same(client: Client) -> None:
    builders.person("oncall")
    texts = []
    for name in ("oncall", "nobody"):
        answer = client.post("/log-in", {"username": name, "password": "wrong"})
        assert answer.status_code == 401
        texts.append("The name or the password is wrong." in answer.content.decode())
    assert texts == [True, True]


def test_guessing_is_throttled_and_says_when_to_try_again(client: Client) -> None:
    builders.person("oncall")
    answers = [
        client.post("/log-in", {"username": "oncall", "password": f"wrong {number}"})
        for number in range(8)
    ]
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["Retry-After"]) > 0


def test_the_audit_pages_back_and_narrows(viewer: Client) -> None:
    for number in range(130):
        builders.audit_entry(reason=f"reason {number}")
    first = viewer.get("/audit").content.decode()
    assert "reason 129" in first
    assert "reason 20<" not in first
    older = viewer.get("/audit?before=" + first.split("before=")[1].split('"')[0])
    assert "reason 20<" in older.content.decode()
    narrowed = viewer.get("/audit?q=reason+77").content.decode()
    assert "reason 77" in narrowed
    assert "reason 129" not in narrowed


def test_odd_queries_are_no_errors(viewer: Client) -> None:
    for query in ("q=%00", "before=x", "before=99999999999999999999", "q=" + "a" * 900):
        assert viewer.get(f"/audit?{query}").status_code == 200
        assert viewer.get(f"/circuits?{query}").status_code == 200
    assert (
        viewer.get("/overrides/new?minutes=zz&mode=%00&selector=%3D%3D&provider=%00").status_code
        == 200
    )


def test_instances_of_two_gateways_with_one_slot_are_told_apart(oncall: Client) -> None:
    circuit = builders.circuit()
    for name in ("chat", "batch"):
        one = builders.instance(builders.gateway(name), slot="host/0")
        builders.circuit_state(one, circuit, "Open", cause="Sibling")
        builders.transition(one, circuit, "Open", builders.ago(5), cause="Sibling")
    text = oncall.get(f"/circuits/{builders.name_of(circuit)}").content.decode()
    for name in ("chat/host/0", "batch/host/0"):
        assert f"<b>{name}</b>" in text
        assert f"<td>{name}</td>" in text
    # The events of both are one line, which counted slots and so said that it was one instance.
    assert "2 instances" in text[text.index('id="events"') :]

"""Hands that are not ours, refusals, and what ObserveOnly would have done: on wall and pages."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.models import Circuit, Instance
from controlplane.reports import wall
from dashboard.board import Board, compose
from tests import builders

pytestmark = pytest.mark.django_db


@pytest.fixture
def one() -> Instance:
    return builders.instance(builders.gateway("chat"), "host-a/0")


def board() -> Board:
    return compose(wall.read())


def card_of(circuit: Circuit) -> dict[str, str | None]:
    return board().cards[f"c{circuit.pk}"]


def forced_here(one: Instance, circuit: Circuit, mode: str = "ForceOpen") -> str:
    """Somebody on the host forces it, and the instance obeys."""
    local = builders.local_override(one.gateway, mode)
    state = "Open" if mode == "ForceOpen" else "Closed"
    builders.circuit_state(one, circuit, state, mode=mode, override_uid=local.uid)
    return local.uid


@pytest.mark.parametrize("mode", ["ForceOpen", "ForceClosed"])
def test_a_hand_on_a_host_is_a_card_that_names_user_host_and_since(
    one: Instance, mode: str
) -> None:
    circuit = builders.circuit()
    other = builders.instance(one.gateway, "host-b/0")
    builders.circuit_state(other, circuit)
    forced_here(one, circuit, mode)
    card = card_of(circuit)
    assert card["why_strong"] == "local:"
    assert card["why"] == f"{mode} by root (sudo ann) on host-a: the control plane is down"
    assert card["instances"] == "1 local · 1 InSync"
    assert (card["desired"], card["seam"], card["edge"]) == (
        "Auto",
        "differs",
        "hand-open" if mode == "ForceOpen" else "hand",
    )
    assert card["since_at"] is not None
    assert card["ends_at"] is not None
    strip = board().strip
    assert strip["overrides_words"] == "1 local"
    assert strip["next_end_at"] is not None


def test_a_hand_on_a_host_that_overrules_an_override_is_never_called_enforced(
    one: Instance,
) -> None:
    circuit = builders.circuit()
    forced_here(one, circuit, "ForceOpen")
    # It decides another circuit there, so the instance says Applied of it as a whole.
    builders.delivery(one, builders.override("ForceClosed", provider="openai"))
    card = card_of(circuit)
    assert card["instances"] == "1 local"
    assert (card["why_strong"], card["edge"]) == ("overruled on the host:", "hand-open")
    assert board().attention[0] == f"c{circuit.pk}"


def test_one_that_has_ended_is_not_shown(one: Instance) -> None:
    circuit = builders.circuit()
    uid = forced_here(one, circuit)
    one.gateway.local_overrides.filter(uid=uid).update(ended_at=builders.now())
    builders.circuit_state(one, circuit, "HalfOpen", cause="OverrideReleased")
    card = card_of(circuit)
    assert card["instances"] == "1 InSync"
    assert board().strip["overrides_words"] == ""


def test_local_hands_and_probes_stand_on_the_pages(oncall: Client, one: Instance) -> None:
    circuit = builders.circuit()
    forced_here(one, circuit)
    builders.delivery(one, builders.probe())
    for path in ("/overrides", "/circuits/openai%2Fgpt-4o@us-east"):
        page = oncall.get(path).content.decode()
        assert "root (sudo ann)" in page, path
        assert "host-a" in page
        assert "the control plane is down" in page
    page = oncall.get("/overrides").content.decode()
    assert "they say it is over" in page
    assert "1 enforced" in page
    # A probe that is over is on its way to nobody, whoever has come since.
    builders.probe(reason="long ago", created_at=builders.ago(90), expires_at=builders.ago(30))
    page = oncall.get("/overrides").content.decode()
    assert "none that runs now heard of it" in page
    assert "on their way" not in page


def test_observe_only_says_how_many_calls_it_would_have_refused(
    oncall: Client, one: Instance
) -> None:
    circuit = builders.circuit()
    hand = builders.override("ObserveOnly", provider="openai", reason="trial")
    builders.delivery(one, hand)
    builders.circuit_state(
        one, circuit, "Open", mode="ObserveOnly", override_uid=str(hand.uid), would_be="Open"
    )
    card = card_of(circuit)
    assert card["why_strong"] == "would have refused 0 calls"
    assert card["why"] == "in the last 15 min, would be Open · oncall: trial"
    builders.rollup(one.gateway, circuit, attempts=400, failed=390, would_refuse=300)
    builders.rollup(one.gateway, circuit, builders.ago(300), attempts=400, would_refuse=12)
    builders.rollup(one.gateway, circuit, builders.ago(3000), attempts=400, would_refuse=999)
    # When it fails most the number matters most: it stays before the failure ratio.
    assert card_of(circuit)["why_strong"] == "would have refused 312 calls"
    said = "would have refused 312 calls in the last 15 min, would be Open"
    assert said in oncall.get("/circuits/openai%2Fgpt-4o@us-east").content.decode()


def test_a_refused_item_is_the_loudest_line_with_its_reason_and_field(
    oncall: Client, one: Instance
) -> None:
    assert board().strip["rejected"] is None
    item = {"kind": "Policy", "name": "chat", "uid": "u", "generation": 3, "verdict": "Rejected"}
    one.items = [item | {"reason": "OutOfRange", "message": "9", "field_path": "open_seconds"}]
    one.save()
    builders.instance(one.gateway, "host-b/0", items=one.items)
    strip = board().strip
    assert strip["rejected"] == "Rejected: 2 instances refuse what they are told."
    said = "chat/host-a/0 and 1 more refuse Policy chat: OutOfRange at open_seconds: 9"
    assert strip["rejected_note"] == said
    for page in ("/gateways", f"/gateways/{one.gateway.name}"):
        told = oncall.get(page).content.decode()
        assert "Policy chat: OutOfRange at open_seconds: 9" in told
    assert said in oncall.get("/").content.decode()
    assert "OutOfRange at open_seconds" in oncall.get("/gateways").content.decode()


def test_a_refused_override_is_no_fault_of_the_circuits_that_it_is_not_about(
    one: Instance,
) -> None:
    about, beside = builders.circuit(model="o3"), builders.circuit(model="o4")
    hand = builders.override(provider="openai", model="o3")
    for circuit in (about, beside):
        builders.circuit_state(one, circuit, "Open")
    builders.delivery(one, hand, "Rejected", reason="LocalFloorViolated")
    item = {"kind": "Override", "name": hand.name, "uid": str(hand.uid), "verdict": "Rejected"}
    one.items = [item | {"reason": "LocalFloorViolated"}]
    one.save()
    assert card_of(about)["instances"] == "1 rejected"
    assert card_of(beside)["instances"] == "1 InSync"
    one.items += [{"kind": "Policy", "name": "p", "uid": "p", "verdict": "Rejected"}]
    one.save()
    assert card_of(beside)["instances"] == "1 rejected"


def test_a_refused_snapshot_is_rejected_and_not_only_late(oncall: Client, one: Instance) -> None:
    one.gateway.config.generation = 2
    one.gateway.config.hash = "2"
    one.gateway.config.save()
    one.refused_generation, one.refused_reason = 2, "it holds 1 item, 40 run here"
    one.save()
    found = board()
    assert found.strip["rejected"] == "Rejected: 1 instance refuses what it is told."
    assert found.strip["rejected_note"] == (
        "chat/host-a/0 refuses generation 2: it holds 1 item, 40 run here"
    )
    [line] = found.gateways.values()
    assert line["words"] == "0/1 InSync, 1 Rejected (SnapshotRefused)"
    assert "40 run here" in oncall.get("/gateways").content.decode()


def test_what_is_not_on_an_instances_disk_is_no_plain_green(oncall: Client, one: Instance) -> None:
    one.checkpointed_generation = one.applied_generation - 1
    one.save()
    [line] = board().gateways.values()
    assert (line["words"], line["tone"]) == ("1/1 InSync, 1 NotOnDisk", "half")
    page = oncall.get("/gateways").content.decode()
    began = f"would begin with generation {one.checkpointed_generation}"
    assert f"NotOnDisk: a restart while we are away {began}" in page
    one.checkpointed_generation = None  # an older gateway does not say
    one.save()
    assert [line["words"] for line in board().gateways.values()] == ["1/1 InSync"]


def test_an_old_refusal_and_a_silent_instance_raise_no_alarm(one: Instance) -> None:
    one.refused_generation, one.refused_reason = 1, "long ago"
    one.save()
    refused = {"kind": "Policy", "name": "chat", "uid": "u", "verdict": "Rejected"}
    builders.instance(one.gateway, "host-b/0", last_seen_at=builders.ago(60), items=[refused])
    assert board().strip["rejected"] is None


def test_the_way_of_an_override_is_told_once_and_shown_from_there(
    oncall: Client, one: Instance
) -> None:
    hand = builders.override(provider="openai")
    where = {"reason": "OutOfRange", "message": "odd", "field_path": "spec.mode"}
    builders.delivery(one, hand, "Rejected", **where)
    other = builders.instance(one.gateway, "host-b/0")
    builders.delivery(other, hand, acknowledged_at=builders.ago(58))
    page = oncall.get(f"/overrides/{hand.name}").content.decode()
    assert "host-a/0 rejected it: OutOfRange at spec.mode." in page
    assert "1 enforced" in page
    hand.ended_at, hand.end_cause = builders.now(), "Released"
    hand.save()
    page = oncall.get(f"/overrides/{hand.name}").content.decode()
    # What refused it has nothing to lift; the other is still on its way.
    assert "is being released" in page
    assert "1 on their way" in page
    assert "1 rejected" in page
    builders.delivery(other, hand, acknowledged_at=builders.ago(58), lifted_at=builders.now())
    page = oncall.get(f"/overrides/{hand.name}").content.decode()
    assert "is released" in page
    assert "1 lifted" in page

"""What a snapshot does to an instance: item by item, at once, and without losing what it knew."""

import json
from typing import Any

import pytest

from controlplane.domain.breaker import Permit
from controlplane.domain.gate import Gate, Refusal
from controlplane.wire.events import Budget, Transition
from gateway import snapshot
from gateway.live import Live
from tests.gateway import build
from tests.gateway.build import DOWN, EAST, LIMITED, OK, SOUTH, WEST, Kept
from tests.gateway.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def apply(live: Live, clock: FakeClock, source: str = "Stream", **spec: Any) -> dict[str, Any]:
    got = build.received(**spec)
    return {i.uid: i for i in live.apply(got, source, clock.monotonic(), clock.wall())}  # type: ignore[arg-type]


def fail(live: Live, clock: FakeClock, circuit: Any, times: int) -> None:
    for _ in range(times):
        permit = live.admit(circuit, clock.monotonic())
        if isinstance(permit, Refusal):
            return
        live.record(circuit, permit, DOWN, clock.monotonic())


def state(live: Live, clock: FakeClock, circuit: Any) -> Any:
    found = {(c.provider, c.model, c.region): c for c in live.circuit_statuses(clock.monotonic())}
    return found[tuple(circuit)]


def test_without_a_control_plane_the_documented_defaults_hold(clock: FakeClock) -> None:
    sink = Kept()
    live = build.live(clock, sink)
    assert live.in_force.source == "Bootstrap"
    assert live.in_force.generation == 0
    fail(live, clock, EAST, 5)
    refusal = live.admit(EAST, clock.monotonic())
    assert isinstance(refusal, Refusal)
    assert refusal.gate is Gate.BREAKER
    opened = [t for t in sink.of(Transition) if t.to_state == "Open"]
    assert [(t.number, t.cause, t.counters.consecutive) for t in opened] == [
        (2, "ConsecutiveFailures", 5)
    ]
    assert opened[0].next_probe_at is not None
    assert live.max_attempts("anyone") == 3


def test_every_configured_circuit_is_reported_before_its_first_call(clock: FakeClock) -> None:
    sink = Kept()
    live = build.live(clock, sink)
    assert {(t.provider, t.region, t.number, t.cause) for t in sink.of(Transition)} == {
        ("north", "east", 1, "Boot"),
        ("north", "west", 1, "Boot"),
        ("south", "", 1, "Boot"),
    }
    assert state(live, clock, SOUTH).state == "Closed"


def test_force_open_refuses_the_next_call_and_says_when_it_first_did(clock: FakeClock) -> None:
    live = build.live(clock)
    items = apply(live, clock, overrides=[build.override("o1", "ForceOpen", "north/large@east")])
    assert items["o1"].verdict == "Applied"
    assert items["o1"].applied_at == clock.wall()
    assert items["o1"].first_effect_at is None
    refusal = live.admit(EAST, clock.monotonic())
    assert isinstance(refusal, Refusal)
    assert refusal.gate is Gate.OVERRIDE
    assert live.items()[0].first_effect_at == clock.wall()
    seen = state(live, clock, EAST)
    assert (seen.mode, seen.override_uid, seen.would_be) == ("ForceOpen", "o1", "Closed")


def test_an_override_ends_on_time_without_control_plane_and_without_a_tick(
    clock: FakeClock,
) -> None:
    sink = Kept()
    live = build.live(clock, sink)
    apply(live, clock, overrides=[build.override("o1", "ForceOpen", "north/large@east", 30)])
    clock.step(29.9)
    assert isinstance(live.admit(EAST, clock.monotonic()), Refusal)
    clock.step(0.1)
    assert not isinstance(live.admit(EAST, clock.monotonic()), Refusal)
    assert [(t.to_state, t.cause) for t in sink.of(Transition)][-1] == (
        "HalfOpen",
        "OverrideExpired",
    )
    assert state(live, clock, EAST).mode == "Auto"


def test_a_step_of_the_wall_clock_moves_no_deadline(clock: FakeClock) -> None:
    live = build.live(clock)
    apply(live, clock, overrides=[build.override("o1", "ForceOpen", "north/large@east", 30)])
    clock.step_wall(3600)
    assert isinstance(live.admit(EAST, clock.monotonic()), Refusal)
    clock.step_wall(-7200)
    clock.step(30)
    assert not isinstance(live.admit(EAST, clock.monotonic()), Refusal)


def test_the_tick_ends_an_override_without_traffic_and_wakes_the_reporter(
    clock: FakeClock,
) -> None:
    live = build.live(clock)
    apply(live, clock, overrides=[build.override("o1", "ForceOpen", "north/large@east", 30)])
    woken: list[int] = []
    live.on_change = lambda: woken.append(1)
    clock.step(29)
    live.tick(clock.monotonic())
    assert not woken
    clock.step(1)
    live.tick(clock.monotonic())
    assert woken
    assert state(live, clock, EAST).state == "HalfOpen"


@pytest.mark.parametrize(
    ("first", "second", "mode", "verdicts"),
    [
        ("north/large@east", "north/", "ForceClosed", ("Applied", "Applied")),
        ("north/", "north/", "ForceClosed", ("Applied", "Superseded")),
        ("north/", "north/large@east", "ForceClosed", ("Applied", "Superseded")),
        ("south/", "north/large@east", "ObserveOnly", ("Applied", "Applied")),
    ],
)
def test_the_first_of_the_list_decides_a_circuit(
    clock: FakeClock, first: str, second: str, mode: str, verdicts: tuple[str, str]
) -> None:
    live = build.live(clock)
    items = apply(
        live,
        clock,
        overrides=[
            build.override("o1", "ForceClosed", first),
            build.override("o2", "ObserveOnly", second),
        ],
    )
    assert state(live, clock, EAST).mode == mode
    assert (items["o1"].verdict, items["o2"].verdict) == verdicts


def test_the_superseded_takes_over_the_moment_the_first_ends(clock: FakeClock) -> None:
    live = build.live(clock)
    apply(
        live,
        clock,
        overrides=[
            build.override("o1", "ForceClosed", "north/large@east", 10),
            build.override("o2", "ForceOpen", "north/large@east", 60),
        ],
    )
    assert not isinstance(live.admit(EAST, clock.monotonic()), Refusal)
    clock.step(10)
    assert isinstance(live.admit(EAST, clock.monotonic()), Refusal)
    assert {i.uid: i.verdict for i in live.items()}["o2"] == "Applied"


def test_the_last_healthy_target_of_a_route_stays_open_to_calls(clock: FakeClock) -> None:
    live = build.live(clock)
    items = apply(live, clock, overrides=[build.override("o1", "ForceOpen", "north/large@west")])
    assert (items["o1"].verdict, items["o1"].reason) == ("Rejected", "LocalFloorViolated")
    assert "route solo" in items["o1"].message
    assert not isinstance(live.admit(WEST, clock.monotonic()), Refusal)


def test_allow_last_healthy_lifts_the_floor(clock: FakeClock) -> None:
    live = build.live(clock)
    forced = build.override("o1", "ForceOpen", "north/large@west", allow_last_healthy=True)
    assert apply(live, clock, overrides=[forced])["o1"].verdict == "Applied"
    assert isinstance(live.admit(WEST, clock.monotonic()), Refusal)


def test_a_refused_override_applies_once_another_target_is_healthy(clock: FakeClock) -> None:
    live = build.live(clock)
    fail(live, clock, SOUTH, 5)
    forced = build.override("o1", "ForceOpen", "north/large@east")
    assert apply(live, clock, overrides=[forced])["o1"].reason == "LocalFloorViolated"
    clock.step(10)
    permit = live.admit(SOUTH, clock.monotonic())
    assert not isinstance(permit, Refusal)
    live.record(SOUTH, permit, OK, clock.monotonic())
    assert live.items()[0].verdict == "Applied"
    assert isinstance(live.admit(EAST, clock.monotonic()), Refusal)


def test_an_applied_override_stays_when_the_other_targets_fail_later(clock: FakeClock) -> None:
    live = build.live(clock)
    forced = build.override("o1", "ForceOpen", "north/large@east")
    apply(live, clock, overrides=[forced])
    fail(live, clock, SOUTH, 5)
    assert live.items()[0].verdict == "Applied"
    assert isinstance(live.admit(EAST, clock.monotonic()), Refusal)


def test_two_overrides_cannot_take_a_routes_targets_one_each(clock: FakeClock) -> None:
    live = build.live(clock)
    items = apply(
        live,
        clock,
        overrides=[
            build.override("o1", "ForceOpen", "north/large@east"),
            build.override("o2", "ForceOpen", "south/"),
        ],
    )
    assert items["o1"].verdict == "Applied"
    assert items["o2"].reason == "LocalFloorViolated"


def test_a_target_whose_approval_ended_is_no_reason_to_open_the_other(clock: FakeClock) -> None:
    live = build.live(clock)
    both = build.route("r1", "fast", EAST, SOUTH)
    forced = build.override("o1", "ForceOpen", "north/large@east")

    def unapproved(msg: dict[str, Any]) -> None:
        msg["spec"]["routes"][0]["targets"][1]["approved"] = False

    raw = build.altered(build.snapshot_bytes(routes=[both], overrides=[forced]), unapproved)
    got = snapshot.read(raw, "demo")
    items = {i.uid: i for i in live.apply(got, "Stream", clock.monotonic(), clock.wall())}
    assert items["o1"].reason == "LocalFloorViolated"


def test_what_ended_before_it_arrived_is_not_armed(clock: FakeClock) -> None:
    live = build.live(clock)
    items = apply(live, clock, overrides=[build.override("o1", "ForceOpen", "south/", -1)])
    assert (items["o1"].verdict, items["o1"].reason) == ("Rejected", "ExpiredOnArrival")
    assert not isinstance(live.admit(SOUTH, clock.monotonic()), Refusal)


def test_a_second_copy_never_revives_an_override_that_has_ended(clock: FakeClock) -> None:
    live = build.live(clock)
    forced = build.override("o1", "ForceOpen", "north/large@east", 30)
    apply(live, clock, overrides=[forced])
    clock.step(30)
    live.tick(clock.monotonic())
    apply(live, clock, generation=2, remaining={"o1": 0.4}, overrides=[forced])
    assert state(live, clock, EAST).mode == "Auto"


def test_an_extension_moves_the_deadline_and_keeps_the_evidence(clock: FakeClock) -> None:
    live = build.live(clock)
    apply(live, clock, overrides=[build.override("o1", "ForceOpen", "north/large@east", 30)])
    live.admit(EAST, clock.monotonic())
    at = clock.wall()
    clock.step(20)
    longer = build.override("o1", "ForceOpen", "north/large@east", 90, generation=2)
    items = apply(live, clock, generation=2, server_time=clock.wall(), overrides=[longer])
    assert (items["o1"].applied_at, items["o1"].first_effect_at) == (at, at)
    clock.step(60)
    assert isinstance(live.admit(EAST, clock.monotonic()), Refusal)
    clock.step(10)
    assert not isinstance(live.admit(EAST, clock.monotonic()), Refusal)


def test_a_released_override_lands_in_half_open(clock: FakeClock) -> None:
    sink = Kept()
    live = build.live(clock, sink)
    apply(live, clock, overrides=[build.override("o1", "ForceOpen", "north/large@east")])
    apply(live, clock, generation=2)
    assert [(t.to_state, t.cause) for t in sink.of(Transition)][-1] == (
        "HalfOpen",
        "OverrideReleased",
    )


def test_after_a_restart_the_deadline_comes_from_the_time_of_day(clock: FakeClock) -> None:
    live = build.live(clock)
    forced = build.override("o1", "ForceOpen", "north/large@east", 100)
    clock.step(40)
    apply(live, clock, source="DiskCache", overrides=[forced])
    clock.step(59)
    assert isinstance(live.admit(EAST, clock.monotonic()), Refusal)
    # The control plane's own count replaces the guess.
    apply(live, clock, generation=2, remaining={"o1": 20.0}, overrides=[forced])
    clock.step(19)
    assert isinstance(live.admit(EAST, clock.monotonic()), Refusal)
    clock.step(1)
    assert not isinstance(live.admit(EAST, clock.monotonic()), Refusal)


def test_force_closed_records_its_first_effect_only_when_it_changed_something(
    clock: FakeClock,
) -> None:
    live = build.live(clock)
    apply(live, clock, overrides=[build.override("o1", "ForceClosed", "south/")])
    live.admit(SOUTH, clock.monotonic())
    assert live.items()[0].first_effect_at is None
    fail(live, clock, SOUTH, 5)
    permit: Permit | Refusal = live.admit(SOUTH, clock.monotonic())
    assert not isinstance(permit, Refusal)
    assert live.items()[0].first_effect_at is not None


def test_one_unreadable_item_costs_no_other(clock: FakeClock) -> None:
    live = build.live(clock)
    good = build.snapshot_bytes(
        policies=[build.policy("p1"), build.policy("p2", "south/", consecutive_failures=2)],
        overrides=[build.override("o1", "ForceOpen", "north/large@east")],
    )

    def spoil(msg: dict[str, Any]) -> None:
        msg["spec"]["policies"][0]["breaker"]["open_seconds"] = "soon"
        msg["spec"]["overrides"].append({"uid": "o2", "name": "later", "mode": "Sideways"})
        msg["items"] = 4

    got = snapshot.read(build.altered(good, spoil), "demo")
    items = {i.uid: i for i in live.apply(got, "Stream", clock.monotonic(), clock.wall())}
    assert {uid: (i.verdict, i.reason, i.field_path) for uid, i in items.items()} == {
        "p1": ("Rejected", "SchemaInvalid", "breaker.open_seconds"),
        "p2": ("Applied", "", ""),
        "o1": ("Applied", "", ""),
        "o2": ("Rejected", "SchemaInvalid", items["o2"].field_path),
    }
    fail(live, clock, SOUTH, 2)
    assert state(live, clock, SOUTH).state == "Open"


@pytest.mark.parametrize(
    ("numbers", "field"),
    [
        ({"open_seconds": 0}, "breaker.open_seconds"),
        ({"open_seconds": 20, "max_open_seconds": 10}, "breaker.max_open_seconds"),
        ({"failure_ratio": 1.5}, "breaker.failure_ratio"),
        ({"failure_ratio": 0.0}, "breaker.failure_ratio"),
        ({"consecutive_failures": 0}, "breaker.consecutive_failures"),
        ({"ramp_seconds": -1}, "breaker.ramp_seconds"),
        ({"half_open_probes": 0}, "breaker.half_open_probes"),
    ],
)
def test_a_number_out_of_range_is_named(
    clock: FakeClock, numbers: dict[str, Any], field: str
) -> None:
    live = build.live(clock)
    item = apply(live, clock, policies=[build.policy("p1", **numbers)])["p1"]
    assert (item.verdict, item.reason, item.field_path) == ("Rejected", "OutOfRange", field)


@pytest.mark.parametrize(
    ("item", "verdict", "reason", "field"),
    [
        (build.budget("b", "system", burst=-1), "Rejected", "OutOfRange", "bucket.burst"),
        (
            build.budget("b", "tenant", max_attempts=0),
            "Rejected",
            "OutOfRange",
            "bucket.max_attempts",
        ),
        (build.budget("b", "galaxy"), "Unsupported", "UnsupportedField", "level"),
        (
            build.budget("b", "tenant", "north/"),
            "Unsupported",
            "UnsupportedField",
            "match.provider",
        ),
        (
            build.budget("b", "circuit", tenant="t"),
            "Unsupported",
            "UnsupportedField",
            "match.tenant",
        ),
        (
            build.budget("b", "circuit", max_cost_gbp_per_request="1.00"),
            "Unsupported",
            "UnsupportedField",
            "bucket.max_cost_gbp_per_request",
        ),
    ],
)
def test_a_budget_that_cannot_be_enforced_is_named(
    clock: FakeClock, item: Any, verdict: str, reason: str, field: str
) -> None:
    got = apply(build.live(clock), clock, budgets=[item])["b"]
    assert (got.verdict, got.reason, got.field_path) == (verdict, reason, field)


def test_the_last_good_form_stays_while_the_new_one_is_rejected(clock: FakeClock) -> None:
    live = build.live(clock)
    apply(live, clock, policies=[build.policy("p1", consecutive_failures=2)])
    worse = build.policy("p1", generation=2, consecutive_failures=2, open_seconds=-1)
    assert apply(live, clock, generation=2, policies=[worse])["p1"].verdict == "Rejected"
    fail(live, clock, SOUTH, 2)
    assert state(live, clock, SOUTH).state == "Open"


def test_a_policy_changes_live_and_keeps_the_counts(clock: FakeClock) -> None:
    live = build.live(clock)
    fail(live, clock, SOUTH, 3)
    apply(live, clock, policies=[build.policy("p1", consecutive_failures=4)])
    assert state(live, clock, SOUTH).state == "Closed"
    fail(live, clock, SOUTH, 1)
    assert state(live, clock, SOUTH).state == "Open"


def test_rate_limits_count_unless_the_policy_says_not(clock: FakeClock) -> None:
    live = build.live(clock)
    spared = build.policy("p1", "south/", consecutive_failures=2, rate_limits_count=False)
    apply(live, clock, policies=[spared, build.policy("p2", consecutive_failures=2)])
    counted = {}
    for circuit in (SOUTH, EAST):
        for _ in range(3):
            permit = live.admit(circuit, clock.monotonic())
            if not isinstance(permit, Refusal):
                counted[circuit] = live.record(circuit, permit, LIMITED, clock.monotonic())
    assert state(live, clock, SOUTH).state == "Closed"
    assert state(live, clock, EAST).state == "Open"
    assert not counted[SOUTH].counts_against_breaker
    assert counted[EAST].counts_against_breaker


def test_a_budget_changes_live_is_shared_and_keeps_the_counts(clock: FakeClock) -> None:
    live = build.live(clock)
    now = clock.monotonic()
    grants = live.budgets("acme")
    while grants.ask(SOUTH, now) is None:
        pass
    spent = {b.scope: b.spent for b in live.budget_statuses(now)}
    assert spent["system/"] == 6  # 0.1 a second over 60 s
    system = build.budget("b1", "system", min_per_second=1.0, burst=100)
    tenant = build.budget("b2", "tenant", tenant="acme", min_per_second=1.0, burst=100)
    circuit = build.budget("b3", "circuit", min_per_second=1.0, burst=100)
    apply(live, clock, instances=3, budgets=[system, tenant, circuit])
    assert {b.scope: b.balance for b in live.budget_statuses(now)} == {
        "system/": 14,
        "tenant/acme": 14,
        "circuit/south/large": 14,
    }
    live.confirmed("Stream", 1)
    assert {b.balance for b in live.budget_statuses(now)} == {54}


def test_the_narrowest_of_the_list_sets_a_tenants_numbers(clock: FakeClock) -> None:
    live = build.live(clock)
    narrow = build.budget("b1", "tenant", tenant="acme", max_attempts=1, max_attempts_per_task=2)
    items = apply(live, clock, budgets=[narrow, build.budget("b2", "tenant", max_attempts=2)])
    assert {i.verdict for i in items.values()} == {"Applied"}
    assert (live.max_attempts("acme"), live.max_attempts("other")) == (1, 2)
    task = live.task_allowance("acme", "t1")
    assert [task.take(), live.task_allowance("acme", "t1").take(), task.take()] == [
        True,
        True,
        False,
    ]


def test_changed_buckets_are_events_at_most_every_ten_seconds(clock: FakeClock) -> None:
    sink = Kept()
    live = build.live(clock, sink)
    live.budgets("acme").earn(SOUTH, clock.monotonic())
    for _ in range(25):
        clock.step(1)
        live.tick(clock.monotonic())
    assert [(e.scope, e.earned) for e in sink.of(Budget)] == [
        ("circuit/south/large", 1),
        ("system/", 1),
        ("tenant/acme", 1),
    ]


def test_a_route_replaces_the_files_and_its_removal_brings_it_back(clock: FakeClock) -> None:
    live = build.live(clock)
    new = build.route("r1", "fast", SOUTH, deadline_seconds=5.0, attempt_seconds=2.0)
    apply(live, clock, routes=[new, build.route("r2", "extra", SOUTH)])
    route = live.route("fast")
    assert route is not None
    assert [t.circuit for t in route.targets] == [SOUTH]
    assert (route.deadline_seconds, route.attempt_seconds, route.first_byte_seconds) == (5, 2, 2)
    assert live.routes() == ["extra", "fast", "solo"]
    apply(live, clock, generation=2)
    restored = live.route("fast")
    assert restored is not None
    assert [t.circuit for t in restored.targets] == [EAST, SOUTH]
    assert live.routes() == ["fast", "solo"]


def test_a_target_that_the_file_does_not_know_is_rejected(clock: FakeClock) -> None:
    live = build.live(clock)
    unknown = build.route("r1", "fast", SOUTH, build.Circuit("elsewhere", "m"))
    item = apply(live, clock, routes=[unknown])["r1"]
    assert (item.verdict, item.reason) == ("Rejected", "UnknownTarget")
    assert item.field_path == "targets[1].provider"
    route = live.route("fast")
    assert route is not None
    assert route.targets[0].circuit == EAST


def test_an_override_covers_a_circuit_seen_later(clock: FakeClock) -> None:
    live = build.live(clock)
    apply(live, clock, overrides=[build.override("o1", "ObserveOnly", "north/")])
    late = build.Circuit("north", "brand-new")
    live.admit(late, clock.monotonic())
    assert state(live, clock, late).mode == "ObserveOnly"


def test_circuits_are_bounded(clock: FakeClock) -> None:
    live = build.live(clock)
    for number in range(700):
        live.admit(build.Circuit("north", f"m{number}"), clock.monotonic())
    live.admit(build.Circuit("south", "m-last"), clock.monotonic())
    seen = live.circuit_statuses(clock.monotonic())
    assert len(seen) == 502
    assert {c.provider for c in seen if c.model == "(other)"} == {"north", "south"}


def test_tenants_are_bounded(clock: FakeClock) -> None:
    live = build.live(clock)
    for number in range(1500):
        live.budgets(f"t{number}").earn(SOUTH, clock.monotonic())
    tenants = [b for b in live.budget_statuses(clock.monotonic()) if b.scope[:7] == "tenant/"]
    assert len(tenants) == 1001
    assert {b.scope: b.earned for b in tenants}["tenant/(other)"] == 500


def test_a_snapshot_that_lost_items_on_the_way_is_refused() -> None:
    msg = json.loads(build.snapshot_bytes(policies=[build.policy("p1")]))
    msg["spec"]["policies"] = []
    with pytest.raises(snapshot.SnapshotRefused, match="announces 1 items and holds 0"):
        snapshot.read(json.dumps(msg).encode(), "demo")
    damaged = build.snapshot_bytes(policies=[build.policy("p1")]).replace(b'"p1"', b'"p2"')
    with pytest.raises(snapshot.SnapshotRefused, match="changed on the way"):
        snapshot.read(damaged, "demo")
    with pytest.raises(snapshot.SnapshotRefused, match="is for gateway"):
        snapshot.read(build.snapshot_bytes(), "another")
    for junk in (b"", b"{}", b"[1]", b"\xff", b"[" * 100_000):
        with pytest.raises(snapshot.SnapshotRefused):
            snapshot.read(junk, "demo")

"""Configurations, snapshots and events that the gateway's tests are made of."""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from random import getrandbits
from typing import Any
from uuid import UUID, uuid4

import msgspec

from controlplane.domain.circuit import Circuit, parse_circuit
from controlplane.domain.verdict import Kind, Scope, Verdict
from controlplane.wire import desired
from controlplane.wire.events import Attempt, Refusal, mint_id
from gateway import snapshot
from gateway.config import Config, ControlPlane, Key, Listener, Provider, Route, Target
from gateway.live import Live
from gateway.snapshot import Received
from tests.gateway.fake_clock import START, FakeClock

OK = Verdict(Kind.SUCCESS, "ok", False, False, Scope.REQUEST)
DOWN = Verdict(Kind.RETRYABLE, "server_error", True, True, Scope.PROVIDER)
LIMITED = Verdict(Kind.RETRYABLE, "rate_limited", True, True, Scope.KEY, 7.0)
SPENT = Verdict(Kind.PERMANENT, "quota_exhausted", False, False, Scope.KEY)

EAST = Circuit("north", "large", "east")
WEST = Circuit("north", "large", "west")
SOUTH = Circuit("south", "large")


class Kept(list):
    """A sink that keeps what it is given."""

    def of(self, kind: type) -> list:
        return [event for event in self if isinstance(event, kind)]


def config(
    data_dir: Path = Path("unused"), url: str = "", routes: dict[str, list[Circuit]] | None = None
) -> Config:
    """Two providers, two keys at the first; routes `fast` (north, then south) and `solo`."""
    table = {"fast": [EAST, SOUTH], "solo": [WEST]} if routes is None else routes
    return Config(
        gateway=Listener("demo", data_dir=data_dir),
        control_plane=ControlPlane(url, "the-token") if url else None,
        providers=(
            Provider("north", "http://north.test", keys=(Key("a", "s1"), Key("b", "s2"))),
            Provider("south", "http://south.test", keys=(Key("only", "s3"),)),
        ),
        routes=tuple(
            Route(name, tuple(Target(circuit) for circuit in circuits))
            for name, circuits in table.items()
        ),
    )


def live(clock: FakeClock, sink: Kept | None = None, settings: Config | None = None) -> Live:
    return Live(
        settings or config(), uuid4(), "host/0", clock, sink if sink is not None else Kept()
    )


def match(name: str = "", tenant: str = "") -> desired.Match:
    """A match from a circuit's written form; `north/` alone is a whole provider."""
    if name.endswith("/"):
        return desired.Match(provider=name[:-1], tenant=tenant)
    circuit = parse_circuit(name) if name else Circuit("", "")
    return desired.Match(
        provider=circuit.provider, model=circuit.model, region=circuit.region, tenant=tenant
    )


def override(uid: str, mode: str, name: str = "", seconds: float = 300, **more: Any) -> Any:
    fields = {
        "uid": uid,
        "name": uid,
        "generation": 1,
        "match": match(name),
        "mode": mode,
        "reason": "provider is browning out",
        "expires_at": START + timedelta(seconds=seconds),
    }
    return desired.OverrideItem(**(fields | more))


def policy(uid: str, name: str = "", generation: int = 1, **numbers: Any) -> desired.PolicyItem:
    return desired.PolicyItem(
        uid=uid,
        name=uid,
        generation=generation,
        match=match(name),
        breaker=desired.Breaker(**numbers),
    )


def budget(
    uid: str, level: str, name: str = "", tenant: str = "", generation: int = 1, **numbers: Any
) -> desired.BudgetItem:
    return desired.BudgetItem(
        uid=uid,
        name=uid,
        generation=generation,
        level=level,
        match=match(name, tenant),
        bucket=desired.Bucket(**numbers),
    )


def route(uid: str, name: str, *circuits: Circuit, **more: Any) -> desired.RouteItem:
    targets = [
        desired.RouteTarget(provider=c.provider, model=c.model, region=c.region) for c in circuits
    ]
    return desired.RouteItem(uid=uid, name=name, generation=1, targets=targets, **more)


def probe(uid: str, name: str = "", seconds: float = 60) -> desired.ProbeItem:
    return desired.ProbeItem(
        uid=uid,
        name=uid,
        generation=1,
        match=match(name),
        reason="they say it is over",
        expires_at=START + timedelta(seconds=seconds),
    )


def snapshot_bytes(
    generation: int = 1,
    epoch: str = "e1",
    server_time: datetime = START,
    remaining: dict[str, float] | None = None,
    instances: int = 1,
    may_shrink: bool = False,
    **spec: list[Any],
) -> bytes:
    """A snapshot as the control plane writes it; seconds remaining are worked out as it does."""
    whole = desired.Spec(**spec)
    timed = (*whole.overrides, *whole.probes)
    left = {o.uid: (o.expires_at - server_time).total_seconds() for o in timed}
    return msgspec.json.encode(
        {
            "gateway": "demo",
            "epoch": epoch,
            "revision": generation,
            "generation": generation,
            "hash": desired.hash_of(whole),
            "items": whole.count(),
            "server_time": server_time,
            "instances": instances,
            "spec": msgspec.Raw(desired.canonical(whole)),
            "remaining_s": left if remaining is None else remaining,
            "may_shrink": may_shrink,
        }
    )


def altered(snapshot_: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A snapshot of which something was changed, and which is whole all the same."""
    message = msgspec.json.decode(snapshot_)
    change(message)
    spec = msgspec.json.encode(message["spec"])
    message |= {"hash": hashlib.sha256(spec).hexdigest(), "spec": msgspec.Raw(spec)}
    return msgspec.json.encode(message)


def received(*args: Any, **kwargs: Any) -> Received:
    return snapshot.read(snapshot_bytes(*args, **kwargs), "demo")


def attempt(at: datetime = START, uid: UUID | None = None, **more: Any) -> Attempt:
    fields = {
        "id": uid or mint_id(at, getrandbits(74)),
        "occurred_at": at,
        "request": uuid4(),
        "ordinal": 1,
        "role": "first",
        "provider": "north",
        "model": "large",
        "verdict": "success",
        "reason": "ok",
        "billing": "billed",
    }
    return Attempt(**(fields | more))


def refusal(at: datetime = START) -> Refusal:
    return Refusal(
        id=mint_id(at, getrandbits(74)),
        occurred_at=at,
        request=uuid4(),
        provider="north",
        model="large",
        gate="budget",
    )

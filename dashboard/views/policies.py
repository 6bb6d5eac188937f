"""Breaker policies: when a breaker opens, and how it closes again.

Invariant: see ``views.settings``. A policy that a narrower one supersedes somewhere says so.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.actions import policies
from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.precedence import Selection, precedence
from controlplane.models import BreakerPolicy, Circuit
from controlplane.reports import effect, fleet, progress
from controlplane.reports.wall import Rates
from controlplane.wire.desired import Breaker
from dashboard import cards, present
from dashboard.forms import Field, Group
from dashboard.progress import shown as progress_shown
from dashboard.views import settings
from dashboard.views.page import room, show

_MOST = 40  # circuits beside the form
GROUPS = (
    Group(
        "Opens",
        (
            Field(
                "consecutive_failures", "consecutive_failures", "After", "failures in a row",
                "whole", optional=True,
            ),
            Field("failure_ratio", "failure_ratio", "Or at", "% failed", "percent", True),
            Field("minimum_calls", "minimum_calls", "Of at least", "calls", "whole"),
            Field("window_seconds", "window_seconds", "Within", "s"),
            Field("window_calls", "window_calls", "Or the last", "calls", "whole", True),
            Field("slow_ratio", "slow_ratio", "Or at", "% slow", "percent", True),
            Field("slow_call_seconds", "slow_call_seconds", "Slow is over", "s"),
            Field("rate_limits_count", "rate_limits_count", "429s count", "", "flag"),
        ),
    ),
    Group(
        "Stays open",
        (
            Field("open_seconds", "open_seconds", "For", "s at first"),
            Field("max_open_seconds", "max_open_seconds", "Growing to", "s"),
        ),
    ),
    Group(
        "Closes again",
        (
            Field("half_open_probes", "half_open_probes", "Probes", "at a time", "whole"),
            Field("close_after", "close_after", "Closes after", "successes", "whole"),
            Field("probe_lease_seconds", "probe_lease_seconds", "A probe has", "s to report"),
            Field("half_open_max_seconds", "half_open_max_seconds", "Stuck after", "s half open"),
            Field("ramp_seconds", "ramp_seconds", "Ramps over", "s; 0: all at once"),
        ),
    ),
    Group(
        "Rates of each circuit, per gateway",
        (
            Field(
                "requests_per_minute", "requests_per_minute", "Calls", "a minute", "whole", True
            ),
            Field("tokens_per_minute", "tokens_per_minute", "Tokens", "a minute", "whole", True),
        ),
    ),
)  # fmt: skip


def _beside(request: HttpRequest, row: BreakerPolicy) -> dict[str, Any]:
    return covered(row)


KIND = settings.Kind(
    path="policies",
    one="policy",
    words="breaker policy",
    rows=lambda: BreakerPolicy.objects,
    settings=policies.POLICIES,
    create=policies.create,
    update=policies.update,
    remove=policies.remove,
    defaults=Breaker(),
    groups=GROUPS,
    beside=_beside,
)


@require_safe
@room
def listing(request: HttpRequest) -> HttpResponse:
    """Every policy, the narrowest first, with what it says."""
    now = timezone.now()
    rows = in_order(list(BreakerPolicy.objects.all()))
    far = progress.of_items(rows, now, fleet.instances(now))
    found = [
        {
            "row": row,
            "about": present.match_words(row.provider, row.model, row.region),
            "gateways": present.gateways_words(row.gateway, row.selector),
            "words": words(row),
            "progress": progress_shown(one, now),
        }
        for row, one in zip(rows, far, strict=True)
    ]
    context = {"policies": found, "built_in": words(BreakerPolicy())}
    return show(request, "policies/list.html", context, at="budgets")


@require_http_methods(["GET", "HEAD", "POST"])
@room
def one(request: HttpRequest, name: str) -> HttpResponse:
    """One policy; POST saves it."""
    return settings.one(request, KIND, name)


@require_http_methods(["GET", "HEAD", "POST"])
@room
def new(request: HttpRequest) -> HttpResponse:
    """A new policy."""
    return settings.new(request, KIND)


@require_POST
@room
def rollback(request: HttpRequest, name: str) -> HttpResponse:
    """An earlier generation again."""
    return settings.rollback(request, KIND, name)


@require_POST
@room
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Take a policy away."""
    return settings.remove(request, KIND, name)


def selection_of(row: BreakerPolicy) -> Selection:
    """What a policy matches."""
    return Selection(row.gateway, row.selector, row.provider, row.model, row.region)


def in_order(rows: list[BreakerPolicy]) -> list[BreakerPolicy]:
    """Narrowest first."""
    return sorted(rows, key=lambda row: precedence(selection_of(row), row.name))


def words(row: BreakerPolicy) -> dict[str, str]:
    """What a policy says, as sentences a person can compare."""
    spec = settings.spec_of(KIND, row.spec)
    trips = []
    if spec["consecutive_failures"]:
        trips.append(f"{spec['consecutive_failures']} in a row")
    if spec["failure_ratio"]:
        last = f"{spec['window_seconds']:g} s"
        if spec["window_calls"]:
            last = f"the last {spec['window_calls']:,} calls"
        trips.append(
            f"{spec['failure_ratio'] * 100:g}% of at least {spec['minimum_calls']:,} in {last}"
        )
    if spec["slow_ratio"]:
        trips.append(f"{spec['slow_ratio'] * 100:g}% over {spec['slow_call_seconds']:g} s")
    rates = []
    if spec["requests_per_minute"] is not None:
        rates.append(f"{spec['requests_per_minute']:,} calls/min")
    if spec["tokens_per_minute"] is not None:
        rates.append(f"{spec['tokens_per_minute']:,} tokens/min")
    return {
        "trips": ", or ".join(trips) or "never by itself",
        "open": f"{spec['open_seconds']:g} s, growing to {spec['max_open_seconds']:g} s",
        "closes": f"{present.count(spec['close_after'], 'success', 'successes')} of "
        f"{present.count(spec['half_open_probes'], 'probe')} at a time",
        "ramp": f"{spec['ramp_seconds']:g} s" if spec["ramp_seconds"] else "all at once",
        "rates": ", ".join(rates) or "no limit",
    }


def covered(row: BreakerPolicy) -> dict[str, Any]:
    """The circuits that a policy matches, as they do now, those that fail most first."""
    selection = selection_of(row)
    rates = effect.rates_by_circuit(timezone.now())
    rest = in_order(list(BreakerPolicy.objects.exclude(pk=row.pk)))
    mine = precedence(selection, row.name)
    found = []
    for circuit in Circuit.objects.order_by("provider", "model", "region"):
        name = Name(circuit.provider, circuit.model, circuit.region)
        if not selection.covers_circuit(name):
            continue
        own = rates.get(name, Rates())
        others = [
            other.name
            for other in rest
            if precedence(selection_of(other), other.name) < mine
            and selection_of(other).covers_circuit(name)
        ]
        found.append((own.failure_ratio or 0.0, name, own, others[:1]))
    found.sort(key=lambda one: (-one[0], one[1]))
    shown = [
        {
            "name": name,
            "href": cards.circuit_url(name),
            "calls": present.rate(own.attempts / 60),
            "failed": present.failure(own.failure_ratio),
            "narrower": narrower,
        }
        for _, name, own, narrower in found[:_MOST]
    ]
    return {"covered": shown, "covered_count": len(found)}

"""The list of circuits, and one circuit: desired and observed, instance by instance.

Invariant: the circuit's name in the path is its one written form, percent-encoded or plain; one
that is not known is a 404 that says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from csp.decorators import csp_update
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.api import objects as api
from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.circuit import parse_circuit
from controlplane.domain.precedence import Selection
from controlplane.models import Circuit, Override
from controlplane.reports import circuits, effect, telemetry, transitions, wall, wall_rows
from controlplane.reports.wall import Rates
from dashboard import cards, events, lanes, objects, present, series_figure
from dashboard.circuits import LOCAL, Breaker, CircuitFacts, Rank, at_gateway, facts_of
from dashboard.fleet import Fleet
from dashboard.views import circuit_spec
from dashboard.views.incident import href
from dashboard.views.page import PLOTLY_STYLES, person_of, room, show, zone_of
from dashboard.views.providers import status_page
from dashboard.why import cause_words, local_words, observed_words

_NEWEST = 12  # transitions beside the status; the rest stands among the events


@require_safe
@room
def listing(request: HttpRequest) -> HttpResponse:
    """Every circuit that is known, worst first; ``q`` narrows by name."""
    q = request.GET.get("q", "").replace("\x00", "").strip()[:200]
    read = wall.read()
    fleet = Fleet(read.now)
    found = [f for f in facts_of(read, fleet) if _matches(f.row, q)]
    found.sort(key=lambda f: (f.rank, f.row.provider, f.row.model, f.row.region))
    since = lanes.beginning(read.now.at)
    seen = {facts.row.id for facts in found}
    quiet = [
        row
        for row in Circuit.objects.exclude(id__in=seen).order_by("provider", "model", "region")
        if _matches(row, q)
    ]
    context = {
        "q": q,
        "cards": [cards.card(facts, since, read.now.at) for facts in found],
        "quiet": [
            {"row": row, "href": cards.circuit_url(Name(row.provider, row.model, row.region))}
            for row in quiet[:500]
        ],
        "sick": sum(facts.rank is not Rank.HEALTHY for facts in found),
    }
    return show(request, "circuits/list.html", context, at="circuits")


def _matches(row: Circuit | wall_rows.CircuitRow, q: str) -> bool:
    name = f"{row.provider} {row.model} {row.region}".lower()
    return all(word in name for word in q.lower().split())


@require_safe
@room
@csp_update(PLOTLY_STYLES)  # type: ignore[untyped-decorator]
def one(request: HttpRequest, name: str) -> HttpResponse:
    """One circuit."""
    row = _row(name)
    read = wall.read()
    fleet = Fleet(read.now)
    facts = next((f for f in facts_of(read, fleet) if f.row.id == row.pk), None)
    spec = circuit_spec.told(row, timezone.now())
    context = (
        _present(row, read, facts)
        | _hour(row, read.now.at, facts, spec, zone_of(person_of(request)))
        | _as_object(request, row, read.now.at)
        | spec
    )
    return show(request, "circuits/one.html", context, at="circuits")


def _present(row: Circuit, read: wall_rows.Wall, facts: CircuitFacts | None) -> dict[str, Any]:
    """What it is now, instance by instance, and what it was for a quarter of an hour."""
    since = lanes.beginning(read.now.at)
    breakers = _breakers(facts) if facts else []
    scope = {"provider": row.provider, "model": row.model, "region": row.region or "-"}
    return {
        "row": row,
        "facts": facts,
        "c": cards.card(facts, since, read.now.at) if facts else None,
        "lanes": _lanes(facts, since, read.now.at) if facts else [],
        "lanes_since": since,
        "breakers": breakers,
        "tally": Counter(line.sync for line in breakers).most_common(),
        "local": [one for one in read.now.local if _is_over(one, row)],
        "observed": observed_words(facts) if facts else "",
        "status_url": status_page(row.provider),
        "force_query": cards.force_url(row.provider, row.model, row.region),
        "probe_query": f"{reverse('probe-new')}?{urlencode(scope)}",
        "policy_query": f"{reverse('policy-new')}?{urlencode(scope)}",
    }


def _lanes(facts: CircuitFacts, since: datetime, at: datetime) -> list[dict[str, Any]]:
    """The state lane of the fleet, and of each gateway that has it."""
    names = sorted({b.member.gateway.name for b in (*facts.breakers, *facts.silent)})
    found = [("fleet", "", facts)] if len(names) != 1 else []
    found += [(name, reverse("gateway", args=[name]), at_gateway(facts, name)) for name in names]
    return [
        {
            "name": name,
            "href": link,
            "count": f"({len(part.breakers) + len(part.silent)})",
            "words": f"{part.worst_state} {part.states[part.worst_state]}/{part.total}",
            "paths": lanes.lane(part, since, at),
        }
        for name, link, part in found
    ]


def _hour(
    row: Circuit, at: datetime, facts: CircuitFacts | None, spec: dict[str, Any], zone: ZoneInfo
) -> dict[str, Any]:
    """The last hour of whole minutes as charts of one time axis."""
    end = at.replace(second=0, microsecond=0)
    begin = end - timedelta(hours=1)
    steps = telemetry.circuit_series(row.pk, begin, end, timedelta(minutes=1))
    limit = facts.retry_limit if facts else None
    rules = series_figure.Rules(
        trips=circuit_spec.trips_at(spec),
        budget=(limit / 10, f"budget {present.limit(limit)}") if limit is not None else None,
        hands=[
            (o.created_at, f"{o.mode} {present.clock(o.created_at, zone)}")
            for o in overrides_over(row).filter(created_at__gte=begin)
        ],
    )
    figures = series_figure.circuit(steps, begin, end, rules, zone) if steps else []
    return {"figure": figures, "charts": range(len(figures)), "timeline": href(begin, at)}


def overrides_over(row: Circuit) -> QuerySet[Override]:
    """Every override whose match covers the circuit, the newest first."""
    return Override.objects.filter(
        Q(provider__in=["", row.provider]),
        Q(model__in=["", row.model]),
        Q(region__in=["", row.region] + ([] if row.region else ["-"])),
    ).order_by("-created_at")


def _as_object(request: HttpRequest, row: Circuit, at: datetime) -> dict[str, Any]:
    """The circuit as the API gives it, and what happened to it."""
    about = list(overrides_over(row)[:20])
    lines = transitions.of_circuit(row.pk)
    name = Name(row.provider, row.model, row.region)
    report = next(r for r in circuits.read(at) if r.name == name)
    body = api.circuit(report, effect.rates_by_circuit(at).get(name, Rates()))
    site = request.build_absolute_uri("/").rstrip("/")
    happened = events.newest(events.moved(lines), events.forced(about, at))
    return {
        "object": objects.page(body, "circuits", happened, site),
        "rulings": report.rulings(),
        "transitions": [(t, cause_words(t.cause, t.to_state)) for t in lines[:_NEWEST]],
        "transitions_count": len(lines),
        "overrides": about,
    }


def _is_over(local: wall_rows.LocalRow, row: Circuit) -> bool:
    name = Name(row.provider, row.model, row.region)
    return Selection("", "", local.provider, local.model, local.region).covers_circuit(name)


def _row(name: str) -> Circuit:
    try:
        circuit = parse_circuit(name)
    except ValueError as error:
        raise Http404(str(error)) from error
    row = Circuit.objects.filter(
        provider=circuit.provider, model=circuit.model, region=circuit.region
    ).first()
    if row is None:
        raise Http404(f"No circuit is named {name}")
    return row


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table of instances."""

    b: Breaker
    sync: str
    tone: str
    glyph: str
    sync_tone: str
    sync_glyph: str
    why: str
    cause: str


def _breakers(facts: CircuitFacts) -> list[Line]:
    order = ["Rejected", LOCAL, "Unsupported", "Stale", "Unreachable", "Unknown", "Applying"]
    lines = [_line(b) for b in [*facts.breakers, *facts.silent]]
    return sorted(lines, key=lambda line: (_place(order, line.sync), line.b.member.full_name))


def _line(b: Breaker) -> Line:
    tone, glyph = cards.STATE_TONES[b.observed]
    sync_tone, sync_glyph = SYNC_TONES[b.enforcement]
    why = _why(b.delivery.reason, b.delivery.message) if b.delivery else ""
    if b.local is not None:
        why = local_words(b.local)
    # Under a hand the breaker's own last cause explains nothing of what is seen.
    cause = "" if b.state.mode != "Auto" else cause_words(b.state.cause, b.observed)
    return Line(b, str(b.enforcement), tone, glyph, sync_tone, sync_glyph, why, cause)


def _why(reason: str, message: str) -> str:
    return f"{reason}: {message}" if reason and message else reason or message


def _place(order: list[str], word: str) -> int:
    return order.index(word) if word in order else len(order)


SYNC_TONES = {
    LOCAL: ("hand", "hand"),
    "Rejected": ("open", "rejected"),
    "Unsupported": ("unk", "unreachable"),
    "Stale": ("half", "clock"),
    "Unreachable": ("unk", "unreachable"),
    "Unknown": ("unk", "unknown"),
    "Applying": ("info", "arrow"),
    "InSync": ("plain", "tick"),
    "Enforced": ("plain", "tick"),
}

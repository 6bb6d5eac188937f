"""The list of circuits, and one circuit: desired and observed, instance by instance.

Invariant: the circuit's name in the path is its one written form, percent-encoded or plain; one
that is not known is a 404 that says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from csp.decorators import csp_update
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from controlplane.domain.circuit import Circuit as Name
from controlplane.domain.circuit import parse_circuit
from controlplane.domain.precedence import Selection
from controlplane.models import Circuit, Override
from controlplane.reports import telemetry, transitions, wall, wall_rows
from dashboard import cards, lanes, series_figure
from dashboard.circuits import LOCAL, Breaker, CircuitFacts, Rank, facts_of
from dashboard.fleet import Fleet
from dashboard.views.incident import href
from dashboard.views.page import PLOTLY_STYLES, person_of, room, show, zone_of
from dashboard.views.providers import status_page
from dashboard.why import CAUSES, local_words, observed_words


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
    since = lanes.beginning(read.now.at)
    about = Override.objects.filter(
        Q(provider__in=["", row.provider]),
        Q(model__in=["", row.model]),
        Q(region__in=["", row.region] + ([] if row.region else ["-"])),
    ).order_by("-created_at")[:20]
    lines = transitions.of_circuit(row.pk)
    end = read.now.at.replace(second=0, microsecond=0)
    begin = end - timedelta(hours=1)
    steps = telemetry.circuit_series(row.pk, begin, end, timedelta(minutes=1))
    limit = facts.retry_limit if facts else None
    zone = zone_of(person_of(request))
    context = {
        "row": row,
        "facts": facts,
        "c": cards.card(facts, since, read.now.at) if facts else None,
        "breakers": _breakers(facts) if facts else [],
        "transitions": [(line, CAUSES.get(line.cause, line.cause)) for line in lines],
        "overrides": about,
        "local": [one for one in read.now.local if _is_over(one, row)],
        "observed": observed_words(facts) if facts else "",
        "figure": series_figure.circuit(steps, begin, end, limit, zone) if steps else None,
        "status_url": status_page(row.provider),
        "timeline": href(begin, read.now.at),
        "force_query": cards.force_url(row.provider, row.model, row.region),
    }
    return show(request, "circuits/one.html", context, at="circuits")


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
    return sorted(lines, key=lambda line: (_place(order, line.sync), line.b.member.name))


def _line(b: Breaker) -> Line:
    tone, glyph = cards.STATE_TONES[b.observed]
    sync_tone, sync_glyph = SYNC_TONES[b.enforcement]
    why = _why(b.delivery.reason, b.delivery.message) if b.delivery else ""
    if b.local is not None:
        why = local_words(b.local)
    cause = CAUSES.get(b.state.cause, b.state.cause)
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

"""``explain``: what the fields of a kind mean, without asking anybody.

Invariant: every field that a file may set is here, with the default of the contract itself; a test
compares the two.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from controlplane.cli.client import OK, USAGE, Failed
from controlplane.cli.force import lifetimes
from controlplane.cli.kinds import KINDS, Kind, kind_of
from controlplane.cli.show import grid, say

Fields = Mapping[str, str]

ABOUT = {
    "gateways": "A named fleet of processes between callers and providers, with its own token. It"
    " is created with `switchgear create gateway NAME`; its instances register themselves.",
    "circuits": "A provider's model in a region, as gateways report it: what is desired, and what"
    " each instance's next call meets. Nobody writes it; force it, or tune its policy.",
    "overrides": "A person's hand on circuits, until it ends by itself. Never in a file:"
    " force-open, force-close, observe, extend, release.",
    "policies": "When breakers open and close. The narrowest that matches a circuit is in force.",
    "budgets": "How many retries a tenant, a circuit or the system may spend, and what it costs.",
    "routes": "A model name that callers use, and the approved targets that serve it, in order.",
    "providers": "What people know of a provider; its status page is linked to.",
    "tokens": "A service's way in, with a role and an end. Its secret is shown once.",
    "people": "Who may log in, and as what: viewer, operator or admin.",
    "probes": "A wish that open breakers try again now; each instance obeys it once, within 60 s.",
}
_MATCH: Fields = {
    "match.gateway": "one gateway by name; left out: any",
    "match.selector": "gateways by label, such as tier=eu; left out: any",
    "match.provider": "left out: any",
    "match.model": "left out: any",
    "match.region": "left out: any; - means circuits without a region",
}
_OVERRIDE: Fields = {
    "mode": "ForceOpen refuses calls, ForceClosed lets all pass, ObserveOnly only counts",
    "reason": "required; every instance, the audit and the incident show it",
    "expiresIn": f"required; the CLI fills in {lifetimes()}",
    "expiresAt": "instead of expiresIn: a time with its offset",
    "gateway": "one gateway by name; left out: any",
    "selector": "gateways by label, such as tier=eu; left out: any",
    "provider": "left out: any",
    "model": "left out: any",
    "region": "left out: any; - means circuits without a region",
    "ticket": "where the incident is written up",
    "allowLastHealthy": "also where it takes a route's last healthy target, which is else rejected",
    "replace": "the name of the active override on the same match that it takes the place of",
    "breakGlass": "under the two-person rule: fleet-wide at once, told to all until acknowledged",
}
POLICY: Fields = {
    "consecutive_failures": "failures in a row that open it; null: this part is off",
    "failure_ratio": "part of the calls in the window that failed and opens it; null: off",
    "minimum_calls": "fewer calls in the window open nothing by a ratio",
    "window_seconds": "how far back the window reaches",
    "window_calls": "instead of seconds: the last so many calls; null: by seconds",
    "slow_ratio": "part of the calls in the window that were slow and opens it; null: off",
    "slow_call_seconds": "from which duration a call is slow",
    "open_seconds": "how long it stays open the first time; doubles with each trip that follows",
    "max_open_seconds": "the longest that it stays open; a provider's Retry-After may be longer",
    "half_open_probes": "calls let through at one time while half open",
    "close_after": "probes that must succeed before it closes",
    "probe_lease_seconds": "after which a probe without an answer gives its place back",
    "half_open_max_seconds": "without a decision it is Stuck after that long, and reopens",
    "ramp_seconds": "how long concurrency grows back after it closed; 0: at once",
    "rate_limits_count": "whether a provider's 429 counts as a failure",
    "requests_per_minute": "calls to each circuit, per gateway; null: no limit",
    "tokens_per_minute": "tokens to each circuit, per gateway; null: no limit",
}
BUDGET: Fields = {
    "ratio_per_mille": "retries for each thousand first attempts that earn (100 is 10 %)",
    "min_per_second": "retries that are allowed without any traffic",
    "max_per_second": "the most retries a second, whatever was earned; null: no ceiling",
    "burst": "the most retries within any one second",
    "window_seconds": "how far back it counts; longer than the slowest call",
    "max_attempts": "attempts of one request, the first included",
    "max_attempts_per_task": "attempts of all requests of one task",
    "max_cost_gbp": "£ as text that the subject may cost within the cost window; null: no ceiling",
    "cost_window_seconds": "how far back cost is counted",
    "max_cost_gbp_per_request": "£ as text for one request; null: no ceiling",
    "max_cost_gbp_per_task": "£ as text for one task; null: no ceiling",
}
ROUTE: Fields = {
    "targets": "in the order of their use; the first is the primary",
    "deadline_seconds": "for one request with all its attempts, waits and fallbacks",
    "attempt_seconds": "the longest that one attempt may take",
}
TARGET: Fields = {
    "provider": "required",
    "model": "required",
    "region": "left out: none",
    "approved": "a target that is not approved is never used",
    "approved_by": "who approved it",
    "approved_until": "from then on it is not used; null: no end",
    "approved_at": "when it was approved",
    "features": "what was tested: auth, tools, json_schema, streaming, context",
    "processing_regions": "where the provider processes the data",
    "transfer_mechanism": "on which ground data may go there",
    "retention_days": "how long the provider keeps the data",
}


def explain(options: argparse.Namespace) -> int:
    """Print what a kind is and what may be written into it; ``KIND.FIELD`` shows one field."""
    word, _, field = options.kind.partition(".")
    kind = kind_of(word)
    rows = [row for row in _rows(kind) if not field or row[0].partition(".")[0] == field]
    if field and not rows:
        raise Failed(f"{word} has no field {field!r}; see switchgear explain {word}", USAGE)
    if not field:
        say(f"{kind.kind}: {ABOUT[kind.path]}")
    if rows:
        grid([["FIELD", "DEFAULT", "MEANS"], *rows])
    return OK


def _rows(kind: Kind) -> list[list[str]]:
    # Not at the top: the other verbs start quicker without the contract.
    from controlplane.wire.desired import Breaker, Bucket, RouteItem, RouteTarget

    if kind.path == "overrides":
        return [[name, "-", words] for name, words in _OVERRIDE.items()]
    if kind.path == "providers":
        return [["statusUrl", "-", "its status page: an http or https address"]]
    if kind.path == "policies":
        return [*_with_defaults(POLICY, Breaker()), *_plain(_MATCH)]
    if kind.path == "budgets":
        level = ["level", "-", "system, tenant or circuit: each subject of it has its own bucket"]
        tenant = ["match.tenant", "-", "left out: any"]
        return [level, *_with_defaults(BUDGET, Bucket()), *_plain(_MATCH), tenant]
    if kind.path == "routes":
        route = RouteItem(uid="", name="", generation=0, targets=[])
        target = RouteTarget(provider="", model="")
        return [
            *_with_defaults(ROUTE, route),
            *_with_defaults(TARGET, target, "targets[]."),
            *_plain({name: words for name, words in _MATCH.items() if "gateway" in words}),
        ]
    return []


def _plain(fields: Fields) -> list[list[str]]:
    return [[name, "-", words] for name, words in fields.items()]


def _with_defaults(fields: Fields, defaults: object, before: str = "") -> list[list[str]]:
    return [
        [f"{before}{_camel(name)}", _written(getattr(defaults, name)), words]
        for name, words in fields.items()
    ]


def _written(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value in ("", []) else str(value)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def kinds() -> list[str]:
    """The words that mean a kind, one for each."""
    return [kind.names[0] for kind in KINDS]

"""What a budget's edited numbers would have done to the last hour, in words.

Invariant: nothing is told of numbers that cannot be read or that change nothing; every figure is
of ``domain.budget_replay`` over real minutes and is called a reckoning, with what it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from controlplane.domain.budget import BudgetPolicy
from controlplane.domain.budget_replay import Asked, Replay, replay
from dashboard import present

# The numbers of the inequality: (in the object, as the heading words it).
_COUNTED = {
    "ratio_per_mille": lambda value: f"a ratio of {present.limit(value)}",
    "min_per_second": lambda value: f"a floor of {value:g}/s",
    "max_per_second": lambda value: "no ceiling" if value is None else f"a ceiling of {value:g}/s",
}
# What whole minutes do not show.
_NOT_COUNTED = {"burst": "the burst", "window_seconds": "the window"}


@dataclass(frozen=True, slots=True)
class WhatIf:
    """``lines``: (name, figure, what it is of). ``edited``: the changed numbers, in words."""

    edited: str
    lines: Sequence[tuple[str, str, str]]
    left_out: str


def told(
    minutes: Sequence[Asked], recorded: Mapping[str, Any], edited: Mapping[str, Any]
) -> WhatIf | None:
    """None when no number of the inequality was changed.

    Raises ``ValueError`` with the words for a person when the numbers cannot stand.
    """
    changed = [name for name in _COUNTED if recorded[name] != edited[name]]
    if not changed:
        return None
    found = replay(minutes, _policy(recorded), _policy(edited))
    unseen = [words for name, words in _NOT_COUNTED.items() if recorded[name] != edited[name]]
    return WhatIf(
        edited=" and ".join(_COUNTED[name](edited[name]) for name in changed),
        lines=_lines(found),
        left_out=f" {' and '.join(unseen)} as edited," if unseen else "",
    )


def _policy(spec: Mapping[str, Any]) -> BudgetPolicy:
    names = (*_COUNTED, *_NOT_COUNTED)
    try:
        return BudgetPolicy(**{name: spec[name] for name in names})
    except (TypeError, OverflowError) as error:
        raise ValueError("write numbers that a gateway can count with") from error


def _lines(found: Replay) -> list[tuple[str, str, str]]:
    calls = f"{abs(found.more):,} {'fewer' if found.more < 0 else 'more'} retries"
    share = found.more / found.attempts if found.attempts else None
    lines = [
        ("refused", f"{found.refused - found.more:,} retries", f"really {found.refused:,}"),
        ("sent", calls, f"{present.failure(abs(share))} of all calls" if share else "no call"),
    ]
    if found.more:
        word = "less" if found.more < 0 else "more"
        failed = f"{abs(round(found.failing)):,} of them"
        lines += [
            ("failed", failed, "if each failed as often as its minute's calls"),
            ("spent", f"{_about(found.cost_gbp)} {word}", "at its minute's cost of a call"),
        ]
    return lines


def _about(gbp: Decimal) -> str:
    return present.money(abs(gbp))

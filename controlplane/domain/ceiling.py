"""Ceilings in pounds: what a request, a task, a tenant or another subject may cost (design 4.3).

Invariant, checked at the moment of each reservation: what was spent and what is reserved, with the
new estimate, is at most the ceiling (over the last ``window_s`` seconds, or over all time without
one). A reservation is settled with what the call really cost; only that can pass the ceiling, and
only by as much as one estimate was too low. An unknown price is no price of 0: it is refused.

Units: pounds as exact decimals, never rounded; prices are per million tokens; monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation
from typing import NamedTuple

from controlplane.domain.gate import Gate, Refusal
from controlplane.domain.sliding import SlidingSum

ZERO = Decimal(0)
ASSUMED_OUTPUT = 4096
"""Output tokens of a request that names no maximum, for its estimate."""
_EXACT = Context(prec=60)
_UP = Context(prec=60, rounding=ROUND_CEILING)
_SMALLEST = Decimal(1).scaleb(-12)
_MOST = Decimal(10) ** 12


def pounds(field: str, text: str) -> Decimal:
    """A ceiling or price as the wire writes it. Raises ``ValueError`` naming the field."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= _MOST:
        raise ValueError(f"{field} must be an amount in pounds such as '2.50', got {text!r}")
    return amount


def share(ceiling: Decimal, instances: int) -> Decimal:
    """One instance's part of a gateway's ceiling, rounded up at the twelfth place."""
    return _UP.divide(ceiling, Decimal(max(1, instances))).quantize(_SMALLEST, context=_UP)


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Pounds per million tokens of one target."""

    input_gbp: Decimal
    output_gbp: Decimal

    def cost(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Pounds of one call."""
        whole = _EXACT.fma(
            Decimal(input_tokens),
            self.input_gbp,
            _EXACT.multiply(Decimal(output_tokens), self.output_gbp),
        )
        return _EXACT.scaleb(whole, -6)


class Purse:
    """What one subject has spent and reserved. Not locked."""

    __slots__ = ("_ever", "_recent", "most")

    def __init__(self, most: Decimal, window_s: float | None = None) -> None:
        self.most = most
        self._ever = ZERO
        self._recent = None if window_s is None else SlidingSum(window_s, ZERO)

    def spent(self, now: float) -> Decimal:
        """Spent and reserved, in the window."""
        return self._ever if self._recent is None else self._recent.total(now)

    def fits_at(self, cost: Decimal, now: float) -> float | None:
        """When a call of that estimate would fit; ``now`` if it does, None if it never will."""
        if self._recent is not None:
            return self._recent.fits_at(self.most - cost, now)
        return now if self._ever + cost <= self.most else None

    def reserve(self, cost: Decimal, now: float) -> int:
        """Count an estimate; returns its mark."""
        if self._recent is not None:
            return self._recent.add(cost, now)
        self._ever += cost
        return 0

    def settle(self, mark: int, reserved: Decimal, cost: Decimal, now: float) -> None:
        """Put what the call really cost in the place of its estimate."""
        if self._recent is not None:
            self._recent.correct(mark, cost - reserved, now)
        else:
            self._ever += cost - reserved


class Reservation(NamedTuple):
    """One estimate, reserved in every purse that it concerns."""

    price: TokenPrice
    cost: Decimal
    held: tuple[tuple[Purse, int], ...]

    def settle(self, cost: Decimal, now: float) -> None:
        """The call cost this much; 0 when it was not made or is not billed."""
        for purse, mark in self.held:
            purse.settle(mark, self.cost, cost, now)


def refusal(
    purses: tuple[tuple[str, Purse], ...], price: TokenPrice | None, cost: Decimal, now: float
) -> Refusal | None:
    """The first ceiling that an attempt would pass, by its name; None when it passes none.

    ``retry_at`` is when the same attempt would fit by itself.
    """
    if price is None:
        return Refusal(Gate.COST, "unpriced") if purses else None
    for name, purse in purses:
        at = purse.fits_at(cost, now)
        if at is None or at > now:
            return Refusal(Gate.COST, name, at)
    return None


def reserve(
    purses: tuple[tuple[str, Purse], ...], price: TokenPrice, cost: Decimal, now: float
) -> Reservation:
    """Count the estimate of an attempt that goes, in all its purses."""
    return Reservation(price, cost, tuple((p, p.reserve(cost, now)) for _, p in purses))

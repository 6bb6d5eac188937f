"""What has been spent under each cost ceiling in force, in this process (design 4.3).

Invariants: an attempt asks every ceiling that concerns it (its request's, task's, tenant's,
circuit's, the system's) before it is sent; other numbers never lose what was spent; at most
``TASKS`` tasks and ``SUBJECTS`` others are remembered. A ceiling of a budget is a gateway's, and
each of its live instances has its share; one of a request or a task is whole in each, as their
attempts are. A restart begins at 0. Pounds, as exact decimals; monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from controlplane.domain import ceiling
from controlplane.domain.budget import Level
from controlplane.domain.ceiling import Purse, Reservation, TokenPrice, pounds
from controlplane.domain.circuit import Circuit, format_circuit
from controlplane.domain.gate import Refusal
from controlplane.wire.desired import Bucket, PriceItem
from gateway.budgeting import OTHER, TASKS, TENANTS, InForce

SUBJECTS = 2 * TENANTS

Named = tuple[str, Purse]


class _Held:
    """A purse and the window that it was made for."""

    __slots__ = ("purse", "window_s")

    def __init__(self, purse: Purse, window_s: float) -> None:
        self.purse = purse
        self.window_s = window_s


class Ceilings:
    """All purses of one process. Used from the loop's thread."""

    def __init__(self) -> None:
        self._in_force = InForce()
        self._prices: dict[tuple[str, str], TokenPrice] = {}
        self._instances = 1
        self._subjects: dict[tuple[Level, str], _Held] = {}
        self._tasks: dict[tuple[str, str], Purse] = {}
        self.any = False
        """False: nothing has a ceiling, and nobody needs to ask."""

    def use(self, in_force: InForce, instances: int) -> None:
        """Put other budgets in force, or another count of live instances."""
        self._in_force, self._instances = in_force, max(1, instances)
        self.any = in_force.has_ceiling
        if not self.any:
            self._subjects.clear()
            self._tasks.clear()

    def use_prices(self, prices: Iterable[PriceItem]) -> None:
        """The targets' prices; one that is no amount is as none."""
        self._prices.clear()
        for item in prices:
            try:
                price = TokenPrice(pounds("input", item.input_gbp), pounds("o", item.output_gbp))
            except ValueError:
                continue
            self._prices[item.provider, item.model] = price

    def price(self, circuit: Circuit) -> TokenPrice | None:
        """A target's price, if it is known."""
        return self._prices.get((circuit.provider, circuit.model))

    def of_request(self, tenant: str) -> Purse | None:
        """A purse for one request of this tenant."""
        most = self._lowest("max_cost_gbp_per_request", tenant)
        return None if most is None else Purse(most)

    def of_task(self, tenant: str, task: str) -> Purse | None:
        """The purse of a task. The oldest of many is forgotten first."""
        most = self._lowest("max_cost_gbp_per_task", tenant)
        if most is None:
            return None
        purse = self._tasks.pop((tenant, task), None) or Purse(most)
        purse.most = most
        self._tasks[tenant, task] = purse
        if len(self._tasks) > TASKS:
            del self._tasks[next(iter(self._tasks))]
        return purse

    def of_subjects(self, tenant: str, circuit: Circuit, now: float) -> list[Named]:
        """The purses of the tenant, the circuit and the system, with their names."""
        subjects = (
            (Level.TENANT, tenant),
            (Level.CIRCUIT, format_circuit(circuit)),
            (Level.SYSTEM, ""),
        )
        found = ((level.value, self._subject(level, name, now)) for level, name in subjects)
        return [(level, purse) for level, purse in found if purse is not None]

    def _subject(self, level: Level, subject: str, now: float) -> Purse | None:
        bucket = self._in_force.bucket_for(level, subject)
        if bucket.max_cost_gbp is None:
            return None
        most = ceiling.share(pounds("max_cost_gbp", bucket.max_cost_gbp), self._instances)
        held = self._subjects.get((level, subject))
        if held is None:
            if len(self._subjects) >= SUBJECTS and subject != OTHER:
                return self._subject(level, OTHER, now)
            held = self._subjects[level, subject] = _new(bucket, most)
        elif held.window_s != bucket.cost_window_seconds:
            spent = held.purse.spent(now)
            held = self._subjects[level, subject] = _new(bucket, most)
            held.purse.reserve(spent, now)
        held.purse.most = most
        return held.purse

    def _lowest(self, field: str, tenant: str) -> Decimal | None:
        levels = ((Level.TENANT, tenant), (Level.SYSTEM, ""))
        texts = (getattr(self._in_force.bucket_for(*at), field) for at in levels)
        return min((pounds(field, text) for text in texts if text is not None), default=None)


class Spending:
    """One request's view of the ceilings."""

    __slots__ = ("_ceilings", "_own", "_tenant")

    def __init__(self, ceilings: Ceilings, tenant: str, task: str | None) -> None:
        self._ceilings = ceilings
        self._tenant = tenant
        own = [("request", ceilings.of_request(tenant))]
        if task is not None:
            own.append(("task", ceilings.of_task(tenant, task)))
        self._own: list[Named] = [(name, purse) for name, purse in own if purse is not None]

    def ask(
        self, circuit: Circuit, input_tokens: int, output_tokens: int, now: float
    ) -> Quote | Refusal:
        """May an attempt of that estimate go? A quote reserves nothing before ``take``."""
        purses = (*self._own, *self._ceilings.of_subjects(self._tenant, circuit, now))
        price = self._ceilings.price(circuit)
        cost = ceiling.ZERO if price is None else price.cost(input_tokens, output_tokens)
        refusal = ceiling.refusal(purses, price, cost, now)
        return Quote(purses, price, cost) if refusal is None else refusal


class Quote:
    """An attempt that passes no ceiling."""

    __slots__ = ("_cost", "_price", "_purses")

    def __init__(self, purses: tuple[Named, ...], price: TokenPrice | None, cost: Decimal) -> None:
        self._purses = purses
        self._price = price
        self._cost = cost

    def take(self, now: float) -> Reservation | None:
        """Reserve it; None when no ceiling concerns it."""
        if not self._purses or self._price is None:
            return None
        return ceiling.reserve(self._purses, self._price, self._cost, now)


def _new(bucket: Bucket, most: Decimal) -> _Held:
    return _Held(Purse(most, bucket.cost_window_seconds), bucket.cost_window_seconds)

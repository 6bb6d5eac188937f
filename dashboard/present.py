"""How figures, times and names read on screen. Pure: the same input gives the same words.

Invariant: what is not known is ``–`` and never a zero; what is small but not nothing never rounds
to nothing (``<0.1p``); units stand on every figure. Money is £ as ``Decimal``, times are seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from zoneinfo import ZoneInfo

from controlplane.domain.pricing import EXACT

NOT_KNOWN = "–"


def money(gbp: Decimal | None) -> str:
    """``4.8p`` under 10p, ``61p`` under £1, else ``£1,234.56``; a true zero is ``0p``."""
    if gbp is None:
        return NOT_KNOWN
    if gbp < 0:
        return f"-{money(gbp.copy_negate())}"
    if gbp == 0:
        return "0p"
    pence = EXACT.multiply(gbp, Decimal(100))
    if pence < Decimal("0.05"):
        return "<0.1p"
    if (tenths := _rounded(pence, "0.1")) < 10:
        return f"{tenths}p"
    if (whole := _rounded(pence, "1")) < 100:
        return f"{whole}p"
    return f"£{_rounded(gbp, '0.01'):,}"


def _rounded(value: Decimal, step: str) -> Decimal:
    # The usual context holds 28 digits and raises beyond: one mistyped price took the page away.
    return value.quantize(Decimal(step), ROUND_HALF_UP, EXACT)


def number(value: float) -> str:
    """One decimal, none for a true zero: ``14.8``, ``1,204.0``, ``<0.1``, ``0``."""
    if value == 0:
        return "0"
    return "<0.1" if value < 0.05 else f"{value:,.1f}"


def rate(per_second: float | None) -> str:
    """``14.8/s``."""
    return NOT_KNOWN if per_second is None else f"{number(per_second)}/s"


def failure(ratio: float | None) -> str:
    """A failure ratio: one decimal under 10 %, none above (``2.2%``, ``62%``)."""
    if ratio is None:
        return NOT_KNOWN
    percent = ratio * 100
    return f"{percent:.0f}%" if percent >= 9.95 else f"{number(percent)}%"


def retry(ratio: float | None) -> str:
    """A retry ratio without its sign, always one decimal (``9.6``); the limit follows it."""
    return NOT_KNOWN if ratio is None else number(ratio * 100)


def retry_percent(ratio: float | None) -> str:
    """A retry ratio that stands alone: ``9.6%``."""
    return NOT_KNOWN if ratio is None else f"{retry(ratio)}%"


def limit(per_mille: int) -> str:
    """A budget's ratio as a per cent: ``10%``, ``7.5%``."""
    return f"{per_mille / 10:g}%"


def age(seconds: float) -> str:
    """An age in words: ``0.4 s``, ``38 s``, ``3 min 37 s``, ``5 h 26 min``, ``2 d 3 h``."""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def left(seconds: float) -> str:
    """Time left: ``26:38`` under an hour, else as an age; ``now`` when it is over."""
    whole = int(max(seconds, 0.0))
    if whole == 0:
        return "now"
    return f"{whole // 60}:{whole % 60:02d}" if whole < 3600 else age(whole)


def probe(seconds: float) -> str:
    """When a breaker lets its next probe through: ``probe in 6 s``; ``probe due`` within 1 s."""
    if seconds < 1:
        return "probe due"
    return f"probe in {int(seconds)} s" if seconds < 60 else f"probe in {age(seconds)}"


def took(milliseconds: int | None) -> str:
    """How long something took: ``85 ms``, ``1.2 s``; ``–`` while it has not happened."""
    if milliseconds is None:
        return NOT_KNOWN
    return f"{milliseconds} ms" if milliseconds < 1000 else age(milliseconds / 1000)


def lasting(seconds: float) -> str:
    """A chosen length of time: ``15 min``, ``1 h``, ``1 h 30 min``, ``7 days``."""
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    return f"{minutes // 1440} days"


def clock(at: datetime | None, zone: ZoneInfo, now: datetime | None = None) -> str:
    """``14:03:22``; with ``now``, another day is named: ``Mon 17:30:00`` or ``12 Nov 17:30``."""
    if at is None:
        return NOT_KNOWN
    local = at.astimezone(zone)
    days = 0 if now is None else abs((now.astimezone(zone).date() - local.date()).days)
    if days == 0:
        return f"{local:%H:%M:%S}"
    return f"{local:%a %H:%M:%S}" if days < 7 else f"{local:%-d %b %Y %H:%M}"


def whole(at: datetime, zone: ZoneInfo) -> str:
    """The whole of a moment, in the person's zone and in UTC, for who wants to be sure."""
    local = f"{at.astimezone(zone):%a %-d %b %Y %H:%M:%S %Z}"
    return local if local.endswith("UTC") else f"{local} = {at.astimezone(UTC):%H:%M:%S} UTC"


def cut(name: str, width: int) -> str:
    """A name of at most ``width`` letters, cut in the middle: its end tells models apart."""
    if len(name) <= width:
        return name
    tail = (width - 1) * 3 // 5
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"


def clipped(sentence: str, width: int) -> str:
    """A sentence of at most ``width`` letters: its beginning tells what it is about."""
    return sentence if len(sentence) <= width else f"{sentence[: width - 1].rstrip()}…"


def plotted(text: str) -> str:
    """Text that Plotly shows as it is: it reads a few tags, links among them, in every label."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def ended(name: str, tail: int = 8) -> tuple[str, str]:
    """A name as the part that may be cut short on a narrow tile, and the end that never is."""
    return (name, "") if len(name) <= tail + 4 else (name[:-tail], name[-tail:])


def count(number_of: int, one: str, many: str = "") -> str:
    """``1 circuit``, ``40 circuits``."""
    return f"{number_of:,} {one if number_of == 1 else many or one + 's'}"


def place(provider: str, region: str) -> str:
    """``openai · us-east``."""
    return f"{provider} · {region}" if region else provider


def match_words(provider: str, model: str, region: str) -> str:
    """What an object is about: ``openai · any model · us-east``."""
    if not (provider or model or region):
        return "every circuit"
    parts = [provider or "any provider", model or "any model"]
    if region:
        parts.append("no region" if region == "-" else region)
    return " · ".join(parts)


def gateways_words(gateway: str, selector: str) -> str:
    """Which gateways an object is about."""
    return gateway or selector or "any gateway"

"""Template tags that place a card's fields so that ``patch.js`` can place later ones.

Invariant: each tag writes the binding (``data-t``, ``data-a``) and the first value together, so a
node can never show a field that a frame would not reach. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.domain.links import web_address
from dashboard import present

register = template.Library()


@register.simple_tag
def words(fields: Mapping[str, str | None], name: str, css: str = "") -> SafeString:
    """A span with a field's text. ``wall.css`` hides an empty one."""
    text = fields.get(name) or ""
    if css:
        return format_html('<span class="{}" data-t="{}">{}</span>', css, name, text)
    return format_html('<span data-t="{}">{}</span>', name, text)


@register.simple_tag
def bound(fields: Mapping[str, str | None], *pairs: str) -> SafeString:
    """Attributes out of fields: ``{% bound c "data-tone=state_tone" "href=href" %}``."""
    split = [pair.split("=", 1) for pair in pairs]
    values = [(attribute, fields.get(name) or "") for attribute, name in split]
    return format_html('data-a="{}" {}', " ".join(pairs), format_html_join(" ", '{}="{}"', values))


@register.simple_tag(takes_context=True)
def moment(
    context: Mapping[str, Any],
    fields: Mapping[str, str | None],
    name: str,
    form: str,
    css: str = "",
) -> SafeString:
    """A time element worded by ``form``: clock, ago, left, rest, probe; it ticks."""
    value = fields.get(name)
    at = datetime.fromisoformat(value) if value else None
    return format_html(
        '<time class="{}" data-t="{}" data-f="{}" datetime="{}">{}</time>',
        css,
        name,
        form,
        value or "",
        _worded(at, form, context) if at else "",
    )


@register.simple_tag(takes_context=True)
def at(context: Mapping[str, Any], when: datetime | None, form: str = "clock") -> SafeString:
    """A time element of a page: a fixed clock time, or an age or rest that ticks."""
    if when is None:
        return format_html('<span class="quiet">{}</span>', present.NOT_KNOWN)
    return format_html(
        '<time data-f="{}" datetime="{}" title="{}">{}</time>',
        form,
        when.isoformat(timespec="milliseconds"),
        present.whole(when, context["zone"]),
        _worded(when, form, context),
    )


def _worded(when: datetime, form: str, context: Mapping[str, Any]) -> str:
    now: datetime = context["now"]
    zone: ZoneInfo = context["zone"]
    if form == "ago":
        return present.age((now - when).total_seconds())
    if form == "left":
        return present.left((when - now).total_seconds())
    if form == "rest":
        return f"{present.left((when - now).total_seconds())} left"
    if form == "probe":
        rest = (when - now).total_seconds()
        return present.probe(rest)
    return present.clock(when, zone, now)


@register.simple_tag
def outside(address: str, text: str) -> SafeString:
    """A link out of here, in a tab of its own; plain text when the address may not be linked to."""
    try:
        target = web_address(address)
    except ValueError:
        return format_html("{}", text)
    return format_html(
        '<a class="outside" href="{}" target="_blank" rel="noopener noreferrer">{}</a>',
        target,
        text,
    )


@register.inclusion_tag("parts/glyph.html")
def glyph(name: str, css: str = "") -> dict[str, str]:
    """One glyph by its name."""
    return {"name": name, "css": css}


@register.filter
def after(milliseconds: int | None) -> str:
    """How long something took: ``85 ms``, ``1.2 s``."""
    return present.took(milliseconds)


@register.filter
def mode_glyph(mode: str) -> str:
    """The glyph of an override's mode."""
    return {"ForceOpen": "forceopen", "ForceClosed": "forceclosed"}.get(mode, "observe")

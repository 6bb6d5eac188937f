"""The scenes: a fleet, and the screens that are taken of it.

Invariant: every scene starts from an empty database, so any one can be taken alone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.db import connection
from playwright.sync_api import Browser, Page

from controlplane.models import Instance, Override
from tests import builders
from tests.dashboard import fleets, stories
from tests.dashboard.server import WebProcess
from tests.screenshots import wall_states
from tests.screenshots.camera import THEMES, Camera
from tests.screenshots.stage import empty, in_contact

_CAUGHT_UP = """
UPDATE instance i
SET received_generation = c.generation, applied_generation = c.generation, applied_hash = c.hash
FROM gateway_config c
WHERE c.gateway_id = i.gateway_id AND i.slot NOT LIKE %s
"""
Scene = Callable[[Browser, WebProcess], None]
_SICK = "/circuits/openai%2Fo3%40us-east"


def _opened(browser: Browser, web: WebProcess, circuits: int, *, incident: bool) -> Camera:
    empty()
    fleets.populate(circuits, incident=incident)
    in_contact()
    camera = Camera(browser, web.url)
    camera.log_in()
    return camera


def calm(browser: Browser, web: WebProcess) -> None:
    """Nothing is open."""
    _opened(browser, web, 40, incident=False).take("wall-calm", "/", live=True)


def busy(browser: Browser, web: WebProcess) -> None:
    """A provider browns out: forty circuits on one screen, then two hundred."""
    _opened(browser, web, 40, incident=True).take("wall-40", "/", live=True)
    _opened(browser, web, 200, incident=True).take("wall-200", "/", live=True)


def stale(browser: Browser, web: WebProcess) -> None:
    """The server goes away under an open wall."""
    camera = _opened(browser, web, 40, incident=True)
    web.kill()
    camera.page.wait_for_selector("#stale:not([hidden])")
    camera.page.wait_for_timeout(3000)
    camera.as_it_stands("wall-stale")
    web.start()


def forcing(browser: Browser, web: WebProcess) -> None:
    """Before the click, and four seconds after it."""
    camera = _opened(browser, web, 40, incident=True)
    page = camera.page
    page.locator(".card", has_text="gpt-4o-mini").first.focus()
    page.keyboard.press("o")
    page.fill("#reason", "probes burn money during the brownout")
    camera.as_it_stands("force-dialog", until=in_contact)
    page.set_viewport_size({"width": 1440, "height": 900})
    in_contact()
    page.locator("#force-form button.hand").click()
    page.wait_for_selector("#spread")
    hand = Override.objects.latest("created_at")
    for place, one in enumerate(Instance.objects.order_by("id")):
        if one.slot.startswith("batch-iad"):
            continue
        refuses = one.slot == "batch-lhr-1"
        builders.delivery(
            one, hand, "Rejected" if refuses else "Applied",
            reason="LocalFloorViolated" if refuses else "",
            message="it is the last healthy target of route batch-summaries" if refuses else "",
            acknowledged_at=hand.updated_at + timedelta(seconds=0.4 + place / 12),
        )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_CAUGHT_UP, ["batch-iad%"])
    page.wait_for_selector('.dots li[data-state="rejected"]')
    page.wait_for_timeout(1000)
    camera.as_it_stands("force-spread", until=in_contact)


def objects(browser: Browser, web: WebProcess) -> None:
    """The pages about things: overrides, gateways, circuit, budget."""
    camera = _opened(browser, web, 40, incident=True)
    camera.take("overrides", "/overrides")
    camera.take("gateways", "/gateways")
    camera.take("circuit", _SICK, _charted)
    empty()
    stories.brownout()
    camera.log_in()
    camera.take("budgets", "/budgets/system", _charted)


def _charted(page: Page) -> None:
    page.wait_for_selector("#series .trace")
    page.wait_for_timeout(500)


def incident(browser: Browser, web: WebProcess) -> None:
    """An hour later: one time axis, and the words for the postmortem."""
    empty()
    stories.brownout()
    in_contact()
    camera = Camera(browser, web.url)
    camera.log_in()
    camera.take("incident", "/incident", _drawn, whole=True)
    worst = builders.ago(60 * (stories.LENGTH - 24))
    camera.take("wall-past", f"/?at={worst:%Y-%m-%dT%H:%M}Z")


def _drawn(page: Page) -> None:
    page.wait_for_selector("#timeline .bars .point path")
    page.wait_for_timeout(500)


def phone(browser: Browser, web: WebProcess) -> None:
    """The wall, the force dialog and a circuit on a phone."""
    camera = _opened(browser, web, 40, incident=True)
    page = camera.page
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": 390, "height": 844})
        in_contact()
        page.goto(web.url)
        page.wait_for_selector(".pulse[data-live='on']")
        page.wait_for_timeout(1500)
        camera.shoot(f"phone-wall-{theme}-390")
        page.locator(".card", has_text="gpt-4o-mini").first.locator(".force").click()
        page.wait_for_selector("#force-form")
        page.fill("#reason", "probes burn money during the brownout")
        camera.shoot(f"phone-force-{theme}-390")
        page.goto(f"{web.url}{_SICK}")
        _charted(page)
        camera.shoot(f"phone-circuit-{theme}-390")


SCENES: dict[str, Scene] = {
    "calm": calm,
    "busy": busy,
    "stale": stale,
    "forcing": forcing,
    "objects": objects,
    "incident": incident,
    "phone": phone,
    **wall_states.SCENES,
}

"""A frame is shown in slices between paints, and nothing of it is lost: a real Chromium.

The page's clock is stopped by the test, so that a slice is exactly one of its animation frames.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

from controlplane.models import CircuitState
from dashboard import frames
from dashboard.board import Board
from tests import builders
from tests.dashboard.conftest import notify
from tests.dashboard.server import WebProcess
from tests.dashboard.test_browser import fleet, live, log_in
from tests.dashboard.test_frames import apply, boards, known
from tests.dashboard.test_reconnect import PATIENCE_MS, Wire

pytestmark = pytest.mark.browser
CIRCUITS = 24
FRAME_MS = 17
# What the cards say that is not as in these fields; times tick by themselves.
_DIFFERS = """cards => Object.entries(cards).flatMap(([id, fields]) => {
  const card = document.querySelector(`#wall [data-id="${id}"]`);
  if (!card) return [[id, "is not there"]];
  const said = [...card.querySelectorAll("[data-t]:not(time)")].map((n) => [n.dataset.t, n.textContent]);
  const set = [card, ...card.querySelectorAll("[data-a]")].flatMap((n) => n.dataset.a.split(" ")
    .map((pair) => pair.split("=")).map(([attribute, name]) => [name, n.getAttribute(attribute)]));
  return [...said, ...set].filter(([name, is]) => (fields[name] ?? "") !== is).map((one) => [id, ...one]);
})"""  # noqa: E501
# The frames through the page's own `Pending`, taken out in pieces of the given sizes.
_IN_PIECES = """async ({ frames, pieces }) => {
  const script = performance.getEntriesByType("resource").find(({ name }) => name.includes("wall_pending"));
  const { Pending } = await import(script.name);
  const pending = new Pending();
  const shown = { strip: {}, titles: {}, gateways: {}, cards: {} };
  const only = (held, ids) => Object.fromEntries(Object.entries(held).filter(([id]) => ids.has(id)));
  const one = () => {
    if (pending.first !== null) {
      const first = pending.takeFirst();
      if (first.snapshot) {
        Object.assign(shown, { strip: {}, titles: {}, gateways: {}, cards: only(shown.cards, first.snapshot) });
      }
      for (const id of first.gone) delete shown.cards[id];
      for (const id of first.gateways_gone) delete shown.gateways[id];
      Object.assign(shown.strip, first.strip);
      Object.assign(shown.titles, first.titles);
      if (first.density) shown.density = first.density;
      for (const [id, fields] of Object.entries(first.gateways)) shown.gateways[id] = { ...shown.gateways[id], ...fields };
      return true;
    }
    const [id] = pending.ids(new Map());
    if (id === undefined) return false;
    const { fields, whole } = pending.take(id);
    shown.cards[id] = whole ? fields : { ...shown.cards[id], ...fields };
    return true;
  };
  const told = [];
  frames.forEach((frame, number) => {
    pending.add(frame);
    for (let units = 0; units < pieces[number] && one(); units += 1);
    told.push([pending.size === 0, pending.shown()]);
  });
  while (one());
  return { shown, told, last: pending.shown() };
}"""  # noqa: E501


def stopped(page: Page, web: WebProcess) -> Wire:
    """A live wall of open circuits whose clock stands still, and what it is told."""
    page.clock.install()
    wire = Wire(page)
    [one] = fleet(1)
    for number in range(CIRCUITS):
        builders.circuit_state(one, builders.circuit(model=f"model-{number:02}"), "Open")
    log_in(page, web)
    expect(page.locator(".card")).to_have_count(CIRCUITS)
    page.clock.pause_at(page.evaluate("Date.now() + 5000"))
    page.clock.run_for(2000)
    return wire


def states(page: Page) -> list[str]:
    """The cards' states from above."""
    return page.locator(".card .is b").all_inner_texts()


def all_become(page: Page, wire: Wire, state: str) -> None:
    """Every circuit at once, until the page has been told."""
    wire.told.clear()
    CircuitState.objects.update(state=state)
    notify()
    for _ in range(PATIENCE_MS // 100):
        page.wait_for_timeout(100)
        if any(f'"state":"{state}"' in text for text in wire.told):
            return
    raise AssertionError("the page was not told")


def test_a_frame_is_shown_some_cards_at_a_time_and_the_worst_first(
    page: Page, web: WebProcess
) -> None:
    wire = stopped(page, web)
    all_become(page, wire, "HalfOpen")
    assert set(states(page)) == {"Open"}
    counts = []
    while len(counts) < CIRCUITS and not (counts and counts[-1] == CIRCUITS):
        page.clock.run_for(FRAME_MS)
        found = states(page)
        counts.append(found.count("HalfOpen"))
        assert found == ["HalfOpen"] * counts[-1] + ["Open"] * (CIRCUITS - counts[-1])
    assert counts[-1] == CIRCUITS
    assert max(b - a for a, b in pairwise([0, *counts])) <= 12


def test_a_frame_that_is_half_shown_is_finished_before_the_page_says_it_is_lost(
    page: Page, web: WebProcess
) -> None:
    wire = stopped(page, web)
    all_become(page, wire, "HalfOpen")
    for _ in range(3):  # strip, then cards
        page.clock.run_for(FRAME_MS)
        if "HalfOpen" in states(page):
            break
    assert set(states(page)) == {"Open", "HalfOpen"}
    assert wire.page_end is not None
    wire.page_end.close()
    expect(page.locator("#stale")).to_be_visible(timeout=PATIENCE_MS)
    assert set(states(page)) == {"HalfOpen"}
    for number, one in enumerate(CircuitState.objects.order_by("id")):
        if number % 3 == 0:
            one.state = "Open" if number % 2 else "Closed"
            one.save()
    wire.told.clear()
    page.clock.resume()
    live(page)
    whole = [frame for frame in map(json.loads, wire.told) if frame["type"] == "snapshot"][-1]
    shown: dict[str, Any] = {}
    for frame in [whole, *map(json.loads, wire.told[wire.told.index(json_of(wire, whole)) + 1 :])]:
        if frame["type"] in ("snapshot", "patch"):
            apply(shown, frame)
    page.wait_for_function(f"cards => ({_DIFFERS})(cards).length === 0", arg=shown["cards"])
    assert page.evaluate(_DIFFERS, shown["cards"]) == []
    expect(page.locator(".tile")).to_have_count(CIRCUITS // 6)


def json_of(wire: Wire, frame: dict[str, Any]) -> str:
    """The text that a frame came as."""
    return next(text for text in wire.told if json.loads(text) == frame)


def test_in_any_pieces_it_comes_to_what_the_frames_say(page: Page, web: WebProcess) -> None:
    log_in(page, web)

    @settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(boards(), min_size=1, max_size=5),
        st.lists(st.integers(0, 6), min_size=5, max_size=5),
        st.integers(0, 4),
    )
    def check(sequence: list[Board], pieces: list[int], anew: int) -> None:
        sent = [frames.snapshot(sequence[0])]
        for number, (before, after) in enumerate(pairwise(sequence)):
            patch = frames.patch(before, after)
            sent.append(frames.snapshot(after) if number == anew or not patch else patch)
        texts = [json.loads(frames.encode(frame)) for frame in sent]
        found = page.evaluate(_IN_PIECES, {"frames": texts, "pieces": pieces})
        wanted: dict[str, Any] = {}
        apply(wanted, json.loads(frames.encode(frames.snapshot(sequence[-1]))))
        for name in ("strip", "titles"):
            assert known(found["shown"][name]) == known(wanted[name])
        for name in ("gateways", "cards"):
            each = {key: known(fields) for key, fields in found["shown"][name].items()}
            assert each == {key: known(fields) for key, fields in wanted[name].items()}
        assert found["shown"]["density"] == wanted["density"]
        # A time is said when all of it is shown, and at the end always.
        for (empty, at), text in zip(found["told"], texts, strict=True):
            assert not empty or at == text["at"]
        assert (found["last"] or found["told"][-1][1]) == texts[-1]["at"]

    check()


def test_what_changed_glows_and_stops(page: Page, web: WebProcess) -> None:
    [one] = fleet(1)
    builders.circuit_state(one, builders.circuit(), "Open")
    page.emulate_media(reduced_motion="reduce")
    log_in(page, web)
    page.evaluate(
        "() => { window.__lit = new Promise((done) => new MutationObserver((all) => {"
        " if (document.querySelector('.card.glow')) done(true); })"
        ".observe(document.getElementById('wall'), { subtree: true, attributes: true })); }"
    )
    CircuitState.objects.update(state="HalfOpen")
    notify()
    assert page.evaluate("__lit") is True
    expect(page.locator(".glow")).to_have_count(0)

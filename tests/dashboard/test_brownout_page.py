"""``manage.py brownout_page`` draws what ``gateway.brownout --json`` tells."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from django.core.management import CommandError, call_command

from dashboard.charts_brownout import Unreadable, figure, page
from gateway.brownout.__main__ import run
from gateway.brownout.model import Model
from gateway.brownout.table import document

MODEL = Model(scale=0.02)


@pytest.fixture(scope="module")
def told() -> dict:
    return json.loads(json.dumps(document(MODEL, run(MODEL, ["always", "defaults"]))))


def test_every_attempt_of_a_minute_is_drawn(told):
    drawn = figure(told)
    bars = [bar for bar in drawn.data if bar.type == "bar" and bar.orientation != "h"]
    assert len(bars) == 4
    for (firsts, retries), policy in zip(
        (bars[:2], bars[2:]), told["policies"].values(), strict=True
    ):
        sums = [a + b for a, b in zip(firsts.y, retries.y, strict=True)]
        assert sums == [minute["attempts"] for minute in policy["minutes"]]


def test_a_lane_covers_the_forty_minutes_without_a_gap(told):
    spans = sorted(
        (begin, begin + length)
        for bar in figure(told).data
        if bar.orientation == "h"
        for begin, length in zip(bar.base, bar.x, strict=True)
    )
    assert spans[0][0] == 0
    assert spans[-1][1] == pytest.approx(40)
    assert all(one[1] == pytest.approx(two[0]) for one, two in pairwise(spans))


def test_the_page_loads_nothing(told):
    html = page(told)
    assert "<script src=" not in html
    assert "three attempts, always" in html


def test_what_is_not_a_run_is_refused():
    with pytest.raises(Unreadable, match="policies"):
        page({"model": {"ramp_s": 2400}})


def test_the_command_writes_the_page(told, tmp_path):
    source, out = tmp_path / "run.json", tmp_path / "page.html"
    source.write_text(json.dumps(told))
    call_command("brownout_page", "--from", str(source), "--out", str(out))
    assert out.read_text().startswith("<!doctype html>")
    source.write_text("[]")
    with pytest.raises(CommandError, match=r"run\.json"):
        call_command("brownout_page", "--from", str(source), "--out", str(out))

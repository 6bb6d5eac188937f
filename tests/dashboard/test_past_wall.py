"""The wall as it was: what had been said by then, and nothing that came later."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection, transaction
from django.test import Client

from controlplane.ingest.derive import _derive_minutes
from controlplane.reports import wall
from dashboard.board import compose
from tests import builders
from tests.dashboard import stories

pytestmark = pytest.mark.django_db


def test_it_shows_the_incident_that_is_over_now(oncall: Client) -> None:
    end = builders.now()
    stories.brownout(end)
    assert compose(wall.read()).titles["page"] == "Nothing open"
    at = end - timedelta(minutes=stories.LENGTH - 32)
    board = compose(wall.read_past(at), past=True)
    opened = [card for card in board.cards.values() if card["state"] == "Open"]
    assert len(opened) == 6
    forced = [card for card in opened if card["desired"] == "ForceOpen"]
    assert {card["count"] for card in forced} == {"20/20"}
    assert all("19 enforced · 1 rejected" in str(card["instances"]) for card in forced)
    assert all(card["fail"] == "30%" for card in opened)
    assert not any("InSync" in str(card.get("instances")) for card in board.cards.values())
    text = oncall.get(f"/?at={at:%Y-%m-%dT%H:%M}Z").content.decode()
    assert "The wall as it was at" in text
    assert "wall.js" not in text


def test_before_the_first_opening_all_is_calm() -> None:
    end = builders.now()
    stories.brownout(end)
    board = compose(wall.read_past(end - timedelta(minutes=stories.LENGTH - 5)), past=True)
    assert board.titles["page"] == "Nothing open"
    assert len(board.cards) == 40


def test_the_running_minute_holds_nothing_of_later() -> None:
    one = builders.instance(builders.gateway("chat"))
    circuit = builders.circuit()
    builders.circuit_state(one, circuit)
    at = builders.ago(1200).replace(second=0, microsecond=0)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE rollup_watermark SET upto = %s", [at - timedelta(hours=1)])
    builders.rollup(one.gateway, circuit, at - timedelta(minutes=1), attempts=60, firsts=60)
    builders.rollup(one.gateway, circuit, at, attempts=6000, firsts=6000)
    [card] = compose(wall.read_past(at + timedelta(seconds=30)), past=True).cards.values()
    assert card["rate"] == "1.0"


def test_what_is_no_moment_of_the_past_is_the_present(oncall: Client) -> None:
    assert oncall.get("/?at=yesterday").headers["Location"] == "/"
    later = builders.now() + timedelta(hours=1)
    assert "wall.js" in oncall.get(f"/?at={later:%Y-%m-%dT%H:%M}Z").content.decode()


def test_a_calm_wall_names_the_last_incident(oncall: Client) -> None:
    stories.brownout()
    text = oncall.get("/").content.decode()
    assert "The last incident of the day ran" in text
    assert "openai, 6 circuits" in text


def test_the_peak_of_an_hour_is_kept_when_its_gateways_minutes_are_gone() -> None:
    at = builders.ago(3 * 86_400).replace(second=0, microsecond=0)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE rollup_watermark SET upto = %s", [at + timedelta(hours=1)])
    minute = at - timedelta(minutes=20)
    builders.rollup(builders.gateway(), builders.circuit(), minute, wasted_gbp="4.25")
    connection.ensure_connection()
    with transaction.atomic():
        _derive_minutes(connection.connection, [minute], minute)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM rollup_dirty")
            cursor.execute("DELETE FROM rollup_minute")
    peak = wall.read_past(at).trail.peak
    assert peak is not None
    assert (peak.minute, peak.wasted_gbp) == (minute, Decimal("4.25"))

"""The incident's page, its words for the postmortem, and its marks."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from controlplane.models import Annotation, AuditEntry, Claim, Role
from controlplane.reports import incident
from dashboard import postmortem, timeline
from tests import builders
from tests.dashboard import stories

pytestmark = pytest.mark.django_db
LONDON = ZoneInfo("Europe/London")


def figure_of(text: str) -> Any:
    found = re.search(r'<script id="figure" type="application/json">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


def test_by_default_the_page_shows_the_last_incident(oncall: Client) -> None:
    sick = stories.brownout()
    answer = oncall.get("/incident")
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "openai: 6 circuits opened" in text
    assert "probes burn money during the brownout" in text
    assert "19 enforced · 1 rejected" in text
    assert "provider reports it fixed" in text
    figure = figure_of(text)
    names = {trace.get("name") for trace in figure["data"]}
    assert {"Open", "Open on some instances", "retry ratio, %", "timeout/s", "wasted"} <= names
    opened = next(trace for trace in figure["data"] if trace.get("name") == "Open")
    assert len(opened["x"]) >= len(sick)  # type: ignore[arg-type]


def test_every_row_shares_one_time_axis(oncall: Client) -> None:
    stories.brownout()
    figure = figure_of(oncall.get("/incident").content.decode())
    axes = [name for name in figure["layout"] if str(name).startswith("xaxis")]
    assert axes == ["xaxis"]
    assert {trace.get("xaxis", "x") for trace in figure["data"]} == {"x"}


def test_of_a_time_without_telemetry_it_does_not_say_that_nothing_failed(oncall: Client) -> None:
    text = oncall.get("/incident").content.decode()
    assert "Nothing is known of this time" in text
    assert "none is known of" in text
    assert "none failed" not in text


def test_its_figures_are_the_databases_own(oncall: Client) -> None:
    end = builders.now()
    stories.brownout(end)
    read = incident.read(end - timedelta(hours=1), end, end)
    lanes = timeline.lanes(read)
    found = postmortem.figures(read, lanes)
    inside = [m for m in read.minutes if m.minute >= (end - timedelta(hours=1, minutes=1))]
    assert found.wasted == sum((m.wasted_gbp for m in inside), Decimal(0))
    assert found.circuits == 6
    assert found.overrides == 2
    assert found.closed_at is not None
    words = postmortem.markdown(read, found, postmortem.events(read, lanes, []), LONDON, "link")
    assert "wasted**" in words
    assert "| time (GMT) | what | where or who |" in words
    assert words.count("opened |") == 6


def test_a_stretch_is_read_with_its_zone(oncall: Client) -> None:
    query = urlencode({"from": "2026-06-01T10:00", "to": "2026-06-01T11:00"})
    text = oncall.get(f"/incident?{query}").content.decode()
    assert "Mon 1 Jun 2026" in text
    assert "from=2026-06-01T09%3A00%3A00Z" in text  # Europe/London is an hour ahead in June
    assert "older than what is kept" in text


@pytest.mark.parametrize(
    ("since", "until", "field"),
    [
        ("yesterday", "", "from"),
        ("2026-06-01T10:00Z", "2026-06-01T10:00Z", "to"),
        ("2026-06-01T10:00Z", "2026-06-03T10:00Z", "to"),
        ("2026-06-01T10:00\x00", "", "from"),
        ("0001-01-01T00:00", "", "from"),
    ],
)
def test_a_stretch_that_cannot_be_read_is_a_fault_by_field(
    oncall: Client, since: str, until: str, field: str
) -> None:
    answer = oncall.get("/incident", {"from": since, "to": until})
    assert answer.status_code == 422
    assert f"<b>{field}:</b>" in answer.content.decode()


def test_a_hostile_reason_stays_in_its_cell(oncall: Client) -> None:
    hostile = "a|b\n| <img src=x onerror=alert(1)> </script>"
    one = builders.instance(builders.gateway("chat"))
    circuit = builders.circuit()
    builders.transition(one, circuit, "Open", builders.ago(600))
    builders.override("ForceOpen", provider="openai", reason=hostile, created_at=builders.ago(300))
    text = oncall.get("/incident").content.decode()
    assert "<img" not in text
    assert "</script> " not in text
    assert "a\\|b \\| \\&lt;img src=x onerror=alert(1)\\&gt;" in text


def test_a_mark_is_written_audited_and_shown(oncall: Client) -> None:
    at = builders.ago(120).astimezone(LONDON)
    back = "/incident?from=2026-06-01T10:00Z"
    answer = oncall.post(
        "/incident/annotate",
        {"text": "deploy 2.14.1", "at": f"{at:%Y-%m-%dT%H:%M:%S}", "next": back},
    )
    assert answer.headers["Location"] == back
    row = Annotation.objects.get()
    assert abs((row.at - at.astimezone(UTC)).total_seconds()) < 1
    assert AuditEntry.objects.get().after["text"] == "deploy 2.14.1"
    assert "deploy 2.14.1" in oncall.get("/incident").content.decode()


def test_a_mark_of_the_future_is_refused_in_words(oncall: Client) -> None:
    later = (datetime.now(LONDON) + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    answer = oncall.post("/incident/annotate", {"text": "x", "at": later}, follow=True)
    assert "The annotation was not written" in answer.content.decode()
    assert not Annotation.objects.exists()


def test_a_viewer_writes_no_mark_and_claims_nothing(client: Client) -> None:
    client.force_login(builders.person("looker", Role.VIEWER))
    client.post("/incident/annotate", {"text": "x"})
    client.post("/incident/claim", {"act": "claim"})
    assert not Annotation.objects.exists()
    assert not Claim.objects.exists()
    assert "disabled" in client.get("/incident").content.decode()


def test_after_a_write_nobody_is_sent_to_another_site(oncall: Client) -> None:
    answer = oncall.post("/incident/claim", {"next": "https://evil.example/"})
    assert answer.headers["Location"] == "/"

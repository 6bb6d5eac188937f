"""``get telemetry`` says what is wrong behind the figures, and its status says that it is."""

import json

import pytest
from django.db import connection

from controlplane.models import Instance
from tests import builders
from tests.cli.test_cli import Terminal, fleet, terminal  # noqa: F401
from workers import tasks

pytestmark = pytest.mark.django_db(transaction=True)


def test_it_is_status_1_while_a_job_fails(terminal: Terminal) -> None:  # noqa: F811
    tasks.heartbeat()
    tasks.partitions()
    tasks.derive()
    status, said = terminal.run("get", "telemetry")
    assert status == 0, said
    assert "nothing is missing of any instance" in said
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO background_job (name, failing_since, failed_at, error)"
            " VALUES ('overrides.end_expired', now(), now(), 'ValueError: x')"
        )
    try:
        status, said = terminal.run("get", "telemetry")
        assert status == 1
        assert "JobsSucceed" in said
        assert "overrides.end_expired fails since" in said
        status, said = terminal.run("get", "telemetry", "-o", "json")
        assert status == 1
        assert json.loads(said)["kind"] == "TelemetryReport"
        assert terminal.run("get", "telemetry", "x")[0] == 2
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM background_job WHERE name = 'overrides.end_expired'")


def test_the_two_tables_are_parted_by_an_empty_line(terminal: Terminal) -> None:  # noqa: F811
    """A dash stood there, as for an empty cell."""
    one = Instance.objects.earliest("id")
    builders.gap(one, 2, 3, builders.ago(600))
    _, said = terminal.run("get", "telemetry")
    assert "LOST BATCHES" in said
    assert "-" not in said.splitlines()
    assert "" in said.splitlines()

"""``get task``: a task's trace at the terminal, whole, and never one of several guessed."""

import json
import shlex
import uuid
from datetime import timedelta
from typing import Any

import pytest
import yaml
from asgiref.sync import async_to_sync

from controlplane.models import Gateway
from controlplane.models.pool import close_pool
from tests.cli.test_cli import Terminal, fleet, terminal  # noqa: F401
from tests.controlplane.ingest.batches import attempt, batch, now, outcome, refusal
from tests.controlplane.ingest.conftest import Sender, new_sender

pytestmark = pytest.mark.django_db(transaction=True)
AT = now() - timedelta(minutes=10)
REQUEST = str(uuid.uuid4())


def happened(tenant: str) -> list[dict[str, Any]]:
    """A task of one request: an attempt that failed, a refusal, a fallback, its end."""
    own = {"task": "batch 7", "request": REQUEST, "tenant": tenant}

    def at(seconds: int) -> Any:
        return AT + timedelta(seconds=seconds)

    return [
        attempt(
            at(0), **own, verdict="retryable", reason="overloaded\x1b[31m", status=529,
            served=False, billing="not_billed", waited_ms=250, tokens=None,
        ),
        refusal(at(1), **own, gate="budget", detail="system: 0 of 3 left"),
        attempt(at(2), **own, ordinal=2, role="fallback", provider="azure", model="gpt-4o",
                region="eu", ended_ms=4321, first_byte_ms=99),
        outcome(at(3), **own, started_at=AT.isoformat(), latency_ms=3000),
    ]  # fmt: skip


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> Terminal:  # noqa: F811
    """A terminal; gateway one knows the task at two tenants, gateway two at one."""

    async def nobody() -> None:
        return None

    monkeypatch.setattr("controlplane.ingest.commit.observed_changed", nobody)

    async def send(sender: Sender, tenant: str, seq: int) -> None:
        try:
            await sender.send(batch(*happened(tenant), seq=seq))
        finally:
            await close_pool()

    one, two = new_sender(), new_sender()
    Gateway.objects.filter(pk=one.gateway_id).update(name="one")
    Gateway.objects.filter(pk=two.gateway_id).update(name="two")
    for seq, (sender, tenant) in enumerate([(one, "acme"), (one, "it's"), (two, "acme")], 1):
        async_to_sync(send)(sender, tenant, seq)
    return terminal


def test_a_trace_is_a_table_in_order(tasks: Terminal) -> None:
    status, said = tasks.run("get", "task", "batch 7", "--gateway", "two")
    assert status == 0, said
    head, titles, *rows = said.splitlines()
    assert head == "batch 7 of acme at two: succeeded, £0.0000 + 1 attempts unpriced"
    assert titles.split("  ")[0] == "AT"
    assert [row.split("  ")[1] for row in rows] == [
        "attempt 1, first", "refusal", "attempt 2, fallback", "request ended"
    ]  # fmt: skip
    for row, words in zip(
        rows,
        (
            ("openai/gpt-4o", "retryable", "529", "overloaded?[31m", "250", "0.0000"),
            ("budget", "system: 0 of 3 left"),
            ("azure/gpt-4o@eu", "success", "4321", "unpriced"),
            ("succeeded", "3000"),
        ),
        strict=True,
    ):
        assert [word for word in words if word not in row] == []
    status, wide = tasks.run("get", "tasks", REQUEST, "--gateway", "two", "-o", "wide")
    assert (status, REQUEST in wide, "99" in wide, "not_billed" in wide) == (0, True, True, True)


def test_it_is_json_and_yaml_as_the_api_says_it(tasks: Terminal) -> None:
    where = ("--gateway", "one", "--tenant", "it's")
    status, said = tasks.run("get", "task", "batch 7", *where, "-o", "json")
    found = json.loads(said)
    assert (status, found["metadata"]["tenant"]) == (0, "it's")
    assert [row["kind"] for row in found["items"]] == ["attempt", "refusal", "attempt", "outcome"]
    status, said = tasks.run("get", "task", "batch 7", *where, "-o", "yaml")
    assert (status, yaml.safe_load(said)) == (0, found)
    assert tasks.run("get", "task", "batch 7", *where, "-o", "name") == (0, "task/batch 7\n")


def test_one_that_several_know_is_not_guessed(tasks: Terminal) -> None:
    status, said = tasks.run("get", "task", "batch 7")
    assert status == 5
    commands = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert len(commands) == 3
    for command in commands:
        status, shown = tasks.run(*shlex.split(command)[1:])
        assert (status, "succeeded" in shown) == (0, True), command


def test_bad_use_and_nothing_found(tasks: Terminal) -> None:
    assert tasks.run("get", "task")[0] == 2
    assert tasks.run("get", "task", "batch 7", "--watch")[0] == 2
    assert tasks.run("watch", "task", "batch 7")[0] == 2
    assert tasks.run("get", "task", "batch 8")[0] == 3
    status, script = tasks.run("completion", "bash")
    assert status == 0
    offered = [line for line in script.splitlines() if line.strip().startswith('get) said="')]
    assert any({"circuits", "task"} <= {*line.split('"')[1].split()} for line in offered)
    assert "force-open|" in script

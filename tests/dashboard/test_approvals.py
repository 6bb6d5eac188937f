"""A route's page says what is approved until when, and gives an admin the command to change it."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from controlplane.actions import routes, tokens
from controlplane.actions.actor import SYSTEM
from controlplane.models import Role, Route
from tests import builders

FIRST = {"provider": "openai", "model": "gpt-4o", "region": "us-east", "features": ["tools"]}
SECOND = {"provider": "o'hare", "model": "$(id) `id`", "region": "eu", "approved": False}


def made(**first: Any) -> Route:
    targets = [FIRST | first, SECOND]
    return routes.create(
        actor=SYSTEM,
        name="chat",
        spec={"targets": targets, "deadline_seconds": 42},
        match={"selector": "tier=chat"},
        now=builders.now(),
    )


def page_for(client: Client, role: Role) -> str:
    client.force_login(builders.person(f"a-{role}", role))
    return client.get("/routes/chat").content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_who_may_not_approve_is_not_offered_it_and_told_why(client: Client, role: Role) -> None:
    made()
    text = page_for(client, role)
    assert "Approving and withdrawing take admin" in text
    assert "switchgear apply --" not in text
    assert 'id="approval-1"' not in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("days", "words"),
    [(None, "approved, no end"), (40, "approved until"), (3, "approved anew"), (-1, "never used")],
)
def test_the_state_is_said_with_its_end(client: Client, days: int | None, words: str) -> None:
    until = None if days is None else (builders.now() + timedelta(days=days)).isoformat()
    made(**({"approved_until": until} if until else {}))
    text = page_for(client, Role.ADMIN).replace("Copy to approve anew", "approved anew")
    assert words in text


@pytest.mark.django_db(transaction=True)
def test_the_copied_command_approves_that_target_and_changes_nothing_else(
    client: Client, live_server: Any
) -> None:
    row = made()
    Route.objects.filter(pk=row.pk).update(managers={"targets": "somebody"})
    text = page_for(client, Role.ADMIN)
    first, second = (
        html.unescape(found)
        for found in re.findall(r'id="approval-\d" value="(.*?)">', text, re.DOTALL)
    )
    token = tokens.issue(actor=SYSTEM, name="cli", role="admin", now=builders.now()).token
    environment = {
        "SWITCHGEAR_URL": live_server.url,
        "SWITCHGEAR_TOKEN": token,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def pasted(command: str) -> dict[str, Any]:
        # Followed to each instance it would wait: there is none.
        typed = command.replace(" --watch", "")
        done = subprocess.run(
            ["bash", "-c", typed], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert "routes/chat configured" in done.stdout
        row.refresh_from_db()
        return dict(row.spec)

    before = dict(row.spec)
    after = pasted(second)
    assert after["targets"][0] == before["targets"][0]
    assert (after["targets"][1]["provider"], after["targets"][1]["model"]) == (
        "o'hare",
        "$(id) `id`",
    )
    assert after["targets"][1]["approved"] is True
    assert after["targets"][1]["approved_by"] == "a-admin"
    assert after["targets"][1]["approved_until"] is not None
    assert (after["deadline_seconds"], row.selector) == (42, "tier=chat")
    assert "--force" in second
    after = pasted(first)
    assert after["targets"][0]["approved"] is False
    assert after["targets"][0]["features"] == ["tools"]

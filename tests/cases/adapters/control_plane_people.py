"""Control-plane cases about people: who gets in, who may write, whose write is kept, what ends.

The cases' paths are mapped to ours: ``/keys/`` is a service token, ``/ingest-keys/…/regenerate`` a
gateway's token, ``/users/…`` an account, an object with a version is a circuit's override or a
policy. Everything goes through the HTTP door; results are what it answered and what is stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.test import Client
from django.urls import reverse

from controlplane.actions import overrides, tokens
from controlplane.actions.actor import SYSTEM
from controlplane.asgi import application
from controlplane.domain.circuit import Circuit
from controlplane.domain.overrides import standing
from controlplane.models import AuditEntry, GatewayToken, Override, Revision, Role, ServiceToken
from controlplane.reports.circuits import alive_overrides
from tests import builders

Answer = dict[str, Any]
MODES = {"force_open": "ForceOpen", "forced_open": "ForceOpen", "forced_closed": "ForceClosed"}
STATES = {"ForceOpen": "forced_open", "ForceClosed": "forced_closed"}


class Api:
    """Somebody of a role, with a service token of that name."""

    def __init__(self, name: str, role: Role) -> None:
        self._client = Client()
        issued = tokens.issue(actor=SYSTEM, name=name, role=role.value, now=builders.now())
        self._headers = {"Authorization": f"Bearer {issued.token}"}

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        text = "" if body is None else json.dumps(body)
        return self._client.generic(
            method,
            f"/api/v1{path}",
            text,
            content_type="application/json",
            headers=self._headers,
        )


def with_database(
    answer: Callable[[dict[str, Any], pytest.FixtureRequest], Answer],
) -> Callable[[dict[str, Any], pytest.FixtureRequest], Answer]:
    """A case function in a database with one gateway and one circuit."""

    def run(case: dict[str, Any], request: pytest.FixtureRequest) -> Answer:
        request.getfixturevalue("db")
        builders.gateway("demo")
        builders.circuit("openai", "gpt-4o", "")
        return answer(case["input"], request)

    return run


@with_database
def override_expiry(given: dict[str, Any], request: pytest.FixtureRequest) -> Answer:
    if "action" in given:
        return _without_an_end(given)
    return _past_its_end(given)


def _without_an_end(given: dict[str, Any]) -> Answer:
    operator = Api("op", Role.OPERATOR)
    body = {"mode": MODES[given["action"]], "provider": "openai", "reason": "case"}
    refused = operator("POST", "/overrides", body | {"expiresAt": given["expires_at"]})
    fields = [fault["field"] for fault in refused.json().get("errors", [])]
    operator("POST", "/overrides", body | {"expiresIn": "30m"})
    listed = operator("GET", "/overrides?active=1").json()["items"]
    said = refused.status_code == 422 and "expiresIn" in fields
    return {
        "any_of": "refused: expiry required" if said else f"answered {refused.status_code}",
        "listed_as_active_override": len(listed) == 1
        and listed[0]["spec"]["expiresAt"] is not None,
    }


def _past_its_end(given: dict[str, Any]) -> Answer:
    late = _time(given["now"]) - _time(given["override"]["expires_at"])
    now = builders.now()
    row = overrides.force(
        actor=SYSTEM,
        mode=MODES[given["override"]["state"]],
        reason="case",
        provider="openai",
        expires_in=timedelta(minutes=10),
        now=now - late - timedelta(minutes=10),
    )
    overrides.end_expired(now)
    browser = Client()
    browser.force_login(builders.person("oncall"))
    page = browser.get(reverse("overrides"))
    entry = AuditEntry.objects.filter(object_name=row.name).latest("id")
    ruled = standing(alive_overrides(), Circuit("openai", "gpt-4o"), now).in_force
    return {
        "audit_event": entry.action,
        "visible_on_dashboard": row.name in page.content.decode(),
        "gateway_state": "automatic" if ruled is None else STATES[ruled.mode],
    }


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


@with_database
def lost_update(given: dict[str, Any], request: pytest.FixtureRequest) -> Answer:
    writers = {w["by"]: Api(w["by"], Role.OPERATOR) for w in given["writes"]}
    if "note" in given["initial"]:
        return _two_fields(given, writers)
    Revision.objects.filter(id=1).update(value=given["initial"]["version"])
    answers = []
    for write in given["writes"]:
        body = {"mode": MODES[write["set"]["state"]], "provider": "openai", "expiresIn": "10m"}
        answers.append(writers[write["by"]]("POST", "/overrides", body | {"reason": "case"}))
    row = Override.objects.get()
    return {
        # Ours says 201 for a new override, where the case's object existed before.
        "statuses": [200 if a.status_code == 201 else a.status_code for a in answers],
        "final": {"version": row.resource_version, "state": STATES[row.mode]},
        "message_names_last_editor": given["writes"][0]["by"] in answers[-1].json()["detail"],
    }


def _two_fields(given: dict[str, Any], writers: dict[str, Api]) -> Answer:
    """Note and state are two numbers of one policy, each changed from the same version."""
    numbers = {"note": {"closeAfter": 7}, "state": {"consecutiveFailures": 9}}
    first = writers[given["writes"][0]["by"]]
    made = first("PUT", "/policies/case", {"spec": {"match": {}}}).json()["metadata"]
    statuses = []
    for write in given["writes"]:
        spec = {k: v for name in write["set"] for k, v in numbers[name].items()}
        metadata = {"resourceVersion": made["resourceVersion"]}
        body = {"metadata": metadata, "spec": spec}
        statuses.append(writers[write["by"]]("PATCH", "/policies/case", body).status_code)
    kept = first("GET", "/policies/case").json()["spec"]["closeAfter"]
    return {"statuses": statuses, "note_lost": kept != 7}


@with_database
def token_in_url(given: dict[str, Any], request: pytest.FixtureRequest) -> Answer:
    if "ticket" in given:
        url = f"/ws/wall?ticket={given['ticket']}"
        return {"accepted": [_socket_opens(url) for _ in range(given["uses"])]}
    caplog = request.getfixturevalue("caplog")
    query = given["url"].partition("?")[2]
    secret = query.partition("=")[2]
    operator = Api("op", Role.OPERATOR)
    with caplog.at_level("DEBUG"):
        opened = _socket_opens(f"/ws/wall?{query}")
        read = operator("GET", f"/overrides?{query}").status_code == 200
    return {"accepted": opened or read, "secret_in_logs": secret in caplog.text}


def _socket_opens(url: str) -> bool:
    path, _, query = url.partition("?")
    scope = {
        "type": "websocket",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"origin", b"http://localhost"), (b"host", b"localhost")],
        "subprotocols": [],
    }

    async def opens() -> bool:
        socket = ApplicationCommunicator(application, scope)
        await socket.send_input({"type": "websocket.connect"})
        answer = await socket.receive_output(5)
        if answer["type"] == "websocket.accept":
            # A browser can read why only of a socket that was opened: what counts is what follows.
            answer = await socket.receive_output(5)
        socket.stop()
        return bool(answer["type"] != "websocket.close")

    return asyncio.run(opens())


@with_database
def brute_force(given: dict[str, Any], request: pytest.FixtureRequest) -> Answer:
    settings = request.getfixturevalue("settings")
    settings.TRUSTED_PROXIES = given["trusted_proxies"]
    for name in {attempt["user"] for attempt in given["attempts"]}:
        builders.person(name)
    said = [_log_in(attempt) for attempt in given["attempts"]]
    locked = [number for number, word in enumerate(said, 1) if word == "locked"]
    return {"locked_by_attempt": locked[0] if locked else None, "last_attempt": said[-1]}


def _log_in(attempt: dict[str, Any]) -> str:
    password = builders.PASSWORD if attempt["password"] == "right" else "wrong"
    answer = Client().post(
        reverse("login"),
        {"username": attempt["user"], "password": password},
        REMOTE_ADDR=attempt.get("remote_addr", "10.0.0.1"),
        HTTP_X_FORWARDED_FOR=attempt["x_forwarded_for"],
    )
    return {302: "logged_in", 429: "locked"}.get(answer.status_code, "refused")


@with_database
def privilege(given: dict[str, Any], request: pytest.FixtureRequest) -> Answer:
    builders.person("user-2")
    caller = Api("somebody", Role(given["role"]))
    before = _stored()
    asked = given.get("requests") or [given["request"]]
    statuses = [caller(*_mapped(one)).status_code for one in asked]
    return {
        "status": statuses[0],
        "statuses": statuses,
        "effect": "none" if _stored() == before else "changed",
    }


def _mapped(asked: dict[str, Any]) -> tuple[str, str, Any]:
    """The case's request as one of ours."""
    if asked["path"].startswith("/ingest-keys/"):
        return "POST", "/gateways/demo/tokens", {}
    if asked["path"].startswith("/users/"):
        return asked["method"], "/people/user-2", asked["json"]
    return asked["method"], "/tokens", {"name": "key", "role": "viewer"}


def _stored() -> tuple[int, int, int]:
    return (
        ServiceToken.objects.count(),
        GatewayToken.objects.count(),
        AuditEntry.objects.count(),
    )


KINDS = {
    "override_expiry": override_expiry,
    "lost_update": lost_update,
    "token_in_url": token_in_url,
    "brute_force": brute_force,
    "privilege": privilege,
}

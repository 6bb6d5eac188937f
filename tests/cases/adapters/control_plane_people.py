"""Control-plane cases about people: who gets in, who may write, whose write is kept, what ends.

The cases' paths are mapped to ours: ``/keys/`` is a service token, ``/ingest-keys/…/regenerate`` a
gateway's token, ``/users/…`` an account, an object with a version is a circuit's override or a
policy. Everything goes through the HTTP door; results are what it answered and what is stored.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import time_machine
from asgiref.testing import ApplicationCommunicator
from django.test import Client
from django.urls import reverse

from controlplane.actions import gateways, overrides, tokens
from controlplane.actions.actor import SYSTEM
from controlplane.actions.signin import DEVICE_COOKIE
from controlplane.asgi import application
from controlplane.domain.breaker import Breaker, BreakerPolicy, Mode, State
from controlplane.domain.circuit import Circuit
from controlplane.domain.overrides import standing
from controlplane.models import AuditEntry, GatewayToken, Override, Revision, Role, ServiceToken
from controlplane.reports.circuits import alive_overrides
from tests import builders

Answer = dict[str, Any]
STATES = {
    "ForceOpen": "forced_open",
    "ForceClosed": "forced_closed",
    "ObserveOnly": "observe_only",
}
MODES = {word: mode for mode, word in STATES.items()} | {
    "force_open": "ForceOpen",
    "open": "ForceOpen",
    "force_closed": "ForceClosed",
    "force_close": "ForceClosed",
    "closed": "ForceClosed",
    "observe": "ObserveOnly",
}


class Api:
    """Somebody of a role, with a service token of that name; ``None``: nobody, without a token."""

    def __init__(self, name: str, role: Role | None) -> None:
        self._client = Client()
        self._headers: dict[str, str] = {}
        if role is not None:
            issued = tokens.issue(actor=SYSTEM, name=name, role=role.value, now=builders.now())
            self._headers = {"Authorization": f"Bearer {issued.token}"}

    @classmethod
    def with_token(cls, token: str) -> Api:
        """Somebody with this token, whatever it is worth."""
        made = cls("", None)
        made._headers = {"Authorization": f"Bearer {token}"}
        return made

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        text = "" if body is None else json.dumps(body)
        return self.send(method, f"/api/v1{path}", text.encode(), **headers)

    def send(self, method: str, path: str, body: bytes, **headers: str) -> Any:
        """Bytes to a path as they are."""
        given = self._headers | {name.replace("_", "-"): text for name, text in headers.items()}
        return self._client.generic(
            method, path, body, content_type="application/json", headers=given
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
    """Force as the case does. What it lets out has no end; what it names is moved to our now."""
    operator = Api("op", Role.OPERATOR)
    body = {"mode": MODES[given["action"]], "provider": "openai", "reason": "case"}
    ends = given.get("expires_at")
    if ends is not None and "now" in given:
        ends = (builders.now() + (_time(ends) - _time(given["now"]))).isoformat()
    said = operator("POST", "/overrides", body | {"expiresAt": ends})
    refused = said.status_code == 422
    fields = [fault["field"] for fault in said.json().get("errors", [])]
    if refused:
        # What the person does next, as it is said to them.
        operator("POST", "/overrides", body | {"expiresIn": "10m"})
    listed = operator("GET", "/overrides?active=1").json()["items"]
    required = refused and fields == ["expiresIn"] and given.get("expires_at") is None
    return {
        "any_of": "refused: expiry required" if required else f"answered {said.status_code}",
        "refused": refused,
        "status": said.status_code,
        "listed_as_active_override": len(listed) == 1
        and listed[0]["spec"]["expiresAt"] is not None,
    }


def _past_its_end(given: dict[str, Any]) -> Answer:
    late = _time(given["now"]) - _time(given["override"]["expires_at"])
    now = builders.now()
    mode = MODES[given["override"]["state"]]
    row = overrides.force(
        actor=SYSTEM,
        mode=mode,
        reason="case",
        provider="openai",
        expires_in=timedelta(minutes=10),
        now=now - late - timedelta(minutes=10),
    )
    if given.get("worker", "alive") == "alive":
        overrides.end_expired(now)
    browser = Client()
    browser.force_login(builders.person("oncall"))
    page = browser.get(reverse("overrides"))
    entry = AuditEntry.objects.filter(object_name=row.name).latest("id")
    ruled = standing(alive_overrides(), Circuit("openai", "gpt-4o"), now).in_force
    return {
        "audit_event": entry.action,
        "in_force": ruled is not None,
        "visible_on_dashboard": row.name in page.content.decode(),
        "gateway_state": _at_the_gateway(Mode(mode), late.total_seconds()),
    }


def _at_the_gateway(mode: Mode, late_s: float) -> str:
    """What a breaker is that was forced for ten minutes, so long after (before) their end."""
    breaker = Breaker(BreakerPolicy(), 0.0)
    breaker.set_mode(mode, 0.0, 600.0)
    seen = breaker.snapshot(600.0 + late_s)
    if seen.mode is not Mode.AUTO:
        return STATES[seen.mode.value]
    return "half_open" if seen.state is State.HALF_OPEN else "automatic"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


@with_database
def lost_update(given: dict[str, Any], request: pytest.FixtureRequest) -> Answer:
    writers = {
        name: Api(name, Role.OPERATOR) for name in sorted({w["by"] for w in given["writes"]})
    }
    changed = {*given["initial"]}.union(*(w.get("set") or {} for w in given["writes"]))
    if changed <= {"version", "state"}:
        return _Forced(given, writers).played()
    return _Edited(given, writers).played()


class _Forced:
    """The object is the hand on one match; its version is the number of the last change."""

    def __init__(self, given: dict[str, Any], writers: dict[str, Api]) -> None:
        self._given, self._writers = given, writers
        self._version = given["initial"]["version"]
        self._name = ""
        if (state := given["initial"]["state"]) != "auto":
            Revision.objects.filter(id=1).update(value=self._version - 1)
            self._name = overrides.force(
                actor=SYSTEM, mode=MODES[state], reason="case", provider="openai",
                expires_in=timedelta(minutes=10), now=builders.now(),
            ).name  # fmt: skip
        Revision.objects.filter(id=1).update(value=self._version)

    def played(self) -> Answer:
        """Each write in turn."""
        answers = [self._write(write) for write in self._given["writes"]]
        active = Override.objects.filter(ended_at=None).first()
        editor = next(
            w["by"]
            for w, a in zip(self._given["writes"], answers, strict=True)
            if a.status_code < 400
        )
        return {
            # Ours says 201 for a new override, where the case's object existed before.
            "statuses": [200 if a.status_code == 201 else a.status_code for a in answers],
            "final": {
                "version": Revision.objects.get(id=1).value,
                "state": STATES[active.mode] if active else "auto",
            },
            "message_names_last_editor": editor in answers[-1].json().get("detail", ""),
        }

    def _write(self, write: dict[str, Any]) -> Any:
        writer, state = self._writers[write["by"]], (write.get("set") or {}).get("state", "auto")
        known = write.get("if_version", self._version)
        if state == "auto":
            answer = writer(
                "POST", f"/overrides/{self._name}/release", {"resourceVersion": str(known)}
            )
        else:
            body = {
                "mode": MODES[state],
                "provider": "openai",
                "expiresIn": "10m",
                "reason": "case",
            }
            if self._name and known == self._version:
                body["replace"] = self._name
            answer = writer("POST", "/overrides", body)
            if answer.status_code == 201:
                self._name = answer.json()["metadata"]["name"]
        if answer.status_code < 400:
            self._version += 1
        return answer


class _Edited:
    """The object is a policy: each field of the case is one of its numbers, each value a number."""

    NUMBERS = ("closeAfter", "consecutiveFailures", "halfOpenProbes", "minimumCalls", "windowCalls")

    def __init__(self, given: dict[str, Any], writers: dict[str, Api]) -> None:
        self._given, self._writers = given, writers
        written = [given["initial"], *(w.get("set") or {} for w in given["writes"])]
        fields = sorted({name for one in written for name in one if name != "version"})
        self._number = dict(zip(fields, self.NUMBERS, strict=False))
        values = [json.dumps(v) for one in written for n, v in one.items() if n != "version"]
        self._values = list(dict.fromkeys(values))

    def played(self) -> Answer:
        """Each write in turn; the case's versions are ours, in their order."""
        initial, writes = dict(self._given["initial"]), self._given["writes"]
        version = initial.pop("version")
        # By one who writes nothing else.
        first = Api("maker", Role.OPERATOR)
        spec = {"match": {}} | self._spec(initial)
        ours = {version: first("PUT", "/policies/case", {"spec": spec}).json()["metadata"]}
        answers = []
        for write in writes:
            answers.append(self._write(write, ours))
            if answers[-1].status_code == 200 and "set" in write:
                version += 1
                ours[version] = answers[-1].json()["metadata"]
        done = [w for w, a in zip(writes, answers, strict=True) if a.status_code < 300]
        kept = first("GET", "/policies/case").json().get("spec", {})
        final = {name: self._read(kept, name) for name in self._number} | {"version": version}
        # A note that a later accepted write did not change must still be there.
        notes = [w["set"]["note"] for w in done if "note" in w.get("set", {})]
        return {
            # Ours says 204 of what was removed.
            "statuses": [200 if a.status_code == 204 else a.status_code for a in answers],
            "final": final,
            "note_lost": bool(notes) and final["note"] != notes[-1],
            "message_names_last_editor": bool(done)
            and done[-1]["by"] in answers[-1].json().get("detail", ""),
        }

    def _write(self, write: dict[str, Any], ours: dict[int, Any]) -> Any:
        known = write.get("if_version")
        # A version that never was is one of our numbers that never was.
        version = None if known is None else ours.get(known, {"resourceVersion": "999999"})
        writer = self._writers[write["by"]]
        if write.get("delete"):
            match = {"If-Match": str(version["resourceVersion"])} if version else {}
            return writer("DELETE", "/policies/case", **match)
        body: dict[str, Any] = {"spec": self._spec(write["set"])}
        if version:
            body["metadata"] = {"resourceVersion": version["resourceVersion"]}
        return writer("PATCH", "/policies/case", body)

    def _spec(self, fields: dict[str, Any]) -> dict[str, int]:
        return {
            self._number[name]: 2 + self._values.index(json.dumps(value))
            for name, value in fields.items()
        }

    def _read(self, spec: dict[str, Any], name: str) -> Any:
        place = spec.get(self._number[name], 0) - 2
        return json.loads(self._values[place]) if 0 <= place < len(self._values) else None


@with_database
def token_in_url(given: dict[str, Any], request: pytest.FixtureRequest) -> Answer:
    if "ticket" in given:
        url = f"/ws/wall?ticket={given['ticket']}"
        return {"accepted": [_socket_opens(url) for _ in range(given.get("uses", 1))]}
    caplog = request.getfixturevalue("caplog")
    url = urlsplit(given["url"])
    # A secret is what a parameter that is named after one holds, or stands before the host.
    named = [value for name, value in parse_qsl(url.query) if SECRET.search(name)]
    secret = [*named, url.password or ""][0]
    assert secret, f"no secret in {given['url']}"
    nobody, operator = Api("", None), Api("op", Role.OPERATOR)
    tried = f"?{url.query or urlencode({'token': secret})}"
    with caplog.at_level("DEBUG"):
        opened = [
            _socket_opens(f"/ws/wall{tried}"),
            *(
                nobody("GET", f"{path}{tried}").status_code == 200
                for path in ("/circuits", "/audit")
            ),
            # Beside a good token in its header it is refused too: nobody gets used to it.
            operator("GET", f"/overrides{tried}").status_code == 200,
        ]
    return {"accepted": any(opened), "secret_in_logs": secret in caplog.text}


SECRET = re.compile(r"token|key|secret|auth|ticket|password", re.IGNORECASE)


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
    settings.TRUSTED_PROXIES = given.get("trusted_proxies", 0)
    for name in {a["user"].strip().lower() for a in given["attempts"] if a.get("exists", True)}:
        builders.person(name)
    begun, known = builders.now(), Client()
    said = []
    for attempt in given["attempts"]:
        # In the browser that is known by what it was given, or in one that has never been here.
        client = known if attempt.get("known_browser") else Client()
        with time_machine.travel(begun + timedelta(seconds=attempt.get("t", 0)), tick=True):
            word = _log_in(client, attempt)
        if word == "logged_in":
            known.cookies[DEVICE_COOKIE] = client.cookies[DEVICE_COOKIE].value
        said.append(word)
    locked = [number for number, word in enumerate(said, 1) if word == "locked"]
    return {
        "locked_by_attempt": locked[0] if locked else None,
        "last_attempt": said[-1],
        "said": said,
    }


def _log_in(client: Client, attempt: dict[str, Any]) -> str:
    password = builders.PASSWORD if attempt["password"] == "right" else "wrong"
    forwarded = attempt.get("x_forwarded_for")
    answer = client.post(
        reverse("login"),
        {"username": attempt["user"], "password": password},
        REMOTE_ADDR=attempt.get("remote_addr", "10.0.0.1"),
        **({} if forwarded is None else {"HTTP_X_FORWARDED_FOR": forwarded}),
    )
    return {302: "logged_in", 429: "locked"}.get(answer.status_code, "refused")


@with_database
def privilege(given: dict[str, Any], request: pytest.FixtureRequest) -> Answer:
    builders.person("user-2")
    tokens.issue(actor=SYSTEM, name="key", role="viewer", now=builders.now())
    builders.override(provider="openai", name="held")
    caller = _caller(given.get("role"))
    before = _stored()
    asked = given.get("requests") or [given["request"]]
    statuses = [caller(*_mapped(one)).status_code for one in asked]
    return {
        "status": statuses[0],
        "statuses": statuses,
        "effect": "none" if _stored() == before else "changed",
    }


def _caller(role: str | None) -> Api:
    """Somebody of the case's role; a gateway has a token too, which is worth nothing here."""
    if role == "gateway":
        issued = gateways.issue_token(actor=SYSTEM, name="demo", now=builders.now())
        return Api.with_token(issued.token)
    return Api("somebody", None if role in (None, "", "anonymous") else Role(role))


_FORCE = {"mode": "ForceOpen", "provider": "openai", "reason": "case", "expiresIn": "5m"}
_FORCE |= {"model": "gpt-4o"}
# The case's requests as ours: (method, path) -> path and what the body has beside the case's own.
# ``{}`` takes what the pattern's group found. The first that is found.
_PATHS: tuple[tuple[str, str, str, dict[str, Any] | None], ...] = (
    (r"DELETE", r"/ingest-keys/[^/]+/?", "/gateways/demo/tokens/1", None),
    (r"POST", r"/ingest-keys(?:/.*)?", "/gateways/demo/tokens", {}),
    (r"GET", r"/ingest-keys(?:/.*)?", "/gateways/demo/tokens", None),
    (r"GET|POST", r"/(?:keys|tokens)/?", "/tokens", {"name": "made", "role": "viewer"}),
    (r"DELETE", r"/(?:keys|tokens)/[^/]+/?", "/tokens/key", None),
    (r"POST", r"/(?:keys|tokens)/[^/]+/.+", "/tokens", {"name": "made", "role": "viewer"}),
    (r"GET", r"/(?:users|people)/?", "/people", None),
    (r"POST", r"/(?:users|people)/?", "/people", {}),
    (r"PATCH|PUT", r"/(?:users|people)/me/?", "/people/somebody", {}),
    (r"PATCH|PUT", r"/(?:users|people)/[^/]+/?", "/people/user-2", {}),
    (r"POST", r"/(?:circuits|breakers)/.+/(?:force|open|close)/?", "/overrides", _FORCE),
    (r"POST|DELETE", r"/(?:circuits|breakers)/.+/(?:release|clear|reset|force)/?",
     "/overrides/held/release", {}),
    (r"DELETE", r"/overrides/[^/]+/?", "/overrides/held", None),
    (r"POST", r"/overrides/?", "/overrides", _FORCE),
)  # fmt: skip
# Words of theirs that are not words of ours.
_NOT_OURS = {"/overrides": {"state", "mode", "by"}, "/tokens": {"permissions", "scopes"}}
_OURS = {
    *("circuits", "gateways", "overrides", "policies", "budgets", "routes", "providers", "probes"),
    *("annotations", "claim", "audit", "reports", "tasks", "telemetry"),
}


def _mapped(asked: dict[str, Any]) -> tuple[str, str, Any]:
    """The case's request as one of ours; a path of ours is taken as it is."""
    method, said = asked.get("method", "GET").upper(), asked.get("json")
    path = asked["path"].removeprefix("/api/v1").removeprefix("/api")
    for methods, pattern, ours, body in _PATHS:
        if not (re.fullmatch(methods, method) and re.fullmatch(pattern, path)):
            continue
        verb = "PATCH" if ours.startswith("/people/") else "POST" if "release" in ours else method
        if verb in ("GET", "DELETE") or body is None:
            return verb, ours, None
        left_out = _NOT_OURS.get(ours, set())
        kept = {name: value for name, value in (said or {}).items() if name not in left_out}
        return verb, ours, kept | body if ours != "/people/user-2" else (said or {})
    if path.strip("/").partition("/")[0] not in _OURS:
        raise LookupError(f"no part answers {method} {path} yet")
    return method, path.rstrip("/"), said


def _stored() -> tuple[int, ...]:
    return (
        ServiceToken.objects.count(),
        GatewayToken.objects.count(),
        AuditEntry.objects.count(),
        Revision.objects.get(id=1).value,
    )


KINDS = {
    "override_expiry": override_expiry,
    "lost_update": lost_update,
    "token_in_url": token_in_url,
    "brute_force": brute_force,
    "privilege": privilege,
}

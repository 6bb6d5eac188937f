"""Every operation of the OpenAPI document, called with what it allows and with what it forbids.

Schemathesis draws the calls (always the same ones, so a run depends on the commit alone) and a
running control plane answers them: whatever is sent, the answer is no 5xx, comes in time, and a
refusal is a problem document.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from django.conf import settings
from django.db import connection
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, Case, GenerationMode

from controlplane.actions import tokens
from controlplane.actions.actor import SYSTEM
from controlplane.actions.gateways import create
from tests.dashboard.server import WebProcess
from tests.embedded import TestPostgres

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

EXAMPLES = 6
PATIENCE_SECONDS = 20.0
GATEWAY = "fuzzed"


class Caller:
    """Calls with the right token for the operation: a gateway's or an admin's."""

    def __init__(self, url: str, admin: str, gateway: str) -> None:
        self.url, self._admin, self._gateway = url, admin, gateway
        self.session = requests.Session()
        self.session.trust_env = False
        self.calls = 0
        self.faults: list[str] = []

    def send(self, case: Case) -> None:
        """One call, judged."""
        tagged = case.operation.definition.raw.get("tags", [])
        token = self._gateway if "gateway" in tagged else self._admin
        if isinstance(case.query, dict):
            # A stream has no end, so no answer to judge; the watch has tests of its own.
            case.query.pop("watch", None)
        if "gateway" in tagged and isinstance(case.path_parameters, dict) and self.calls % 2:
            case.path_parameters["name"] = GATEWAY
        headers = {"Authorization": f"Bearer {token}"}
        self.calls += 1
        try:
            answer = case.call(
                base_url=self.url,
                session=self.session,
                headers=headers,
                timeout=PATIENCE_SECONDS,
                allow_redirects=False,
            )
        except requests.exceptions.InvalidHeader:
            return
        except requests.RequestException as error:
            self._note(case, f"no answer: {error}")
            return
        if answer.status_code >= 500:
            self._note(case, f"{answer.status_code} {answer.text[:200]}")
        elif answer.status_code >= 400 and case.operation.path not in ("/healthz", "/readyz"):
            kind = answer.headers.get("content-type", [""])
            if "application/problem+json" not in str(kind):
                self._note(case, f"{answer.status_code} without a problem document: {kind}")

    def _note(self, case: Case, what: str) -> None:
        self.faults.append(f"{case.operation.label}: {what}\n  {case.as_curl_command()[:600]}")


@pytest.fixture
def caller(transactional_db: None, postgres: TestPostgres, tmp_path: Path) -> Iterator[Caller]:
    now = datetime.now(UTC)
    gateway = create(actor=SYSTEM, name=GATEWAY, now=now)
    admin = tokens.issue(actor=SYSTEM, name="fuzzer", role="admin", now=now)
    web = WebProcess(postgres.dsn(str(settings.DATABASES["default"]["NAME"])), tmp_path)
    web.start()
    try:
        yield Caller(web.url, admin.token, gateway.token)
    finally:
        web.kill()
        connection.close()


def exercise(operation: APIOperation[Any, Any, Any], mode: GenerationMode, caller: Caller) -> None:
    """Some calls of one operation."""

    @hypothesis_settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Case) -> None:
        caller.send(case)

    try:
        run()
    except Unsatisfiable:
        # Without a parameter and a body nothing can be wrong.
        assert mode is GenerationMode.NEGATIVE


def forbids_something(operation: APIOperation[Any, Any, Any]) -> bool:
    """Whether a call can be wrong: any text in its path is a name, and without more none is.

    To find that out by drawing took two thirds of the test's own processor time.
    """
    said = operation.definition.raw
    return "requestBody" in said or any(
        one["in"] != "path" or _plain(one["schema"]) != {"type": "string"}
        for one in said.get("parameters", [])
    )


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in schema.items() if word not in ("title", "description")}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_call_of_the_document_is_a_fault(caller: Caller) -> None:
    raw = caller.session.get(f"{caller.url}/api/v1/openapi.json", timeout=20).json()
    schema = schemathesis.openapi.from_dict(raw)
    operations = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        operations += 1
        exercise(operation, GenerationMode.POSITIVE, caller)
        if forbids_something(operation):
            exercise(operation, GenerationMode.NEGATIVE, caller)
    assert operations > 40
    assert caller.calls > 5 * operations
    assert caller.faults == [], "\n".join(caller.faults)

"""No write puts a character into the audit that a reader does not see or that turns the others."""

from typing import Any

import pytest
from django.urls import reverse

from controlplane.actions import tokens
from controlplane.actions.actor import SYSTEM
from controlplane.actions.bootstrap import Secrets
from controlplane.models import Annotation, AuditEntry, Claim, Override, Probe
from tests import builders
from tests.controlplane.test_api import FORCE, Caller, fields_of, installed, operator

__all__ = ["installed", "operator"]

pytestmark = pytest.mark.django_db

EVIL = "\u202e it \x1b[31m burns\u2069\u200b"
READ = "it [31m burns"
INVISIBLE = "\u202e\u200b\ufeff"


def test_free_text_is_stored_as_it_reads(operator: Caller) -> None:
    assert operator("POST", "/overrides", FORCE | {"reason": EVIL, "ticket": EVIL}).status_code
    row = Override.objects.get()
    assert (row.reason, row.ticket) == (READ, READ)
    operator("POST", f"/overrides/{row.name}/extend", {"expiresIn": "2h", "reason": EVIL})
    operator("POST", f"/overrides/{row.name}/release", {"reason": EVIL})
    operator("POST", "/probes", {"provider": "openai", "reason": EVIL})
    assert Probe.objects.get().reason == READ
    operator("POST", "/annotations", {"text": EVIL})
    assert Annotation.objects.get().text == READ
    reasons = set(AuditEntry.objects.exclude(reason="").values_list("reason", flat=True))
    assert reasons == {READ}


def test_a_reason_that_nobody_can_see_is_none(operator: Caller) -> None:
    answer = operator("POST", "/overrides", FORCE | {"reason": INVISIBLE})
    assert (answer.status_code, fields_of(answer)) == (422, ["reason"])
    assert not Override.objects.exists()


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/overrides", FORCE | {"provider": "open\u202eai"}, "provider"),
        ("/overrides", FORCE | {"model": "gpt\u200b-4o"}, "model"),
        ("/overrides", FORCE | {"region": "e\u2066u"}, "region"),
        ("/overrides", FORCE | {"gateway": "de\u202emo"}, "gateway"),
        ("/overrides", FORCE | {"selector": "tier=\u202eeu"}, "selector"),
        ("/overrides", FORCE | {"name": "o\u202ev"}, "name"),
        ("/probes", {"provider": "open\nai", "reason": "x"}, "provider"),
    ],
)
def test_a_name_that_hides_something_is_a_422_with_its_field(
    operator: Caller, path: str, body: dict[str, Any], field: str
) -> None:
    answer = operator("POST", path, body)
    assert answer.status_code == 422, answer.json()
    assert field in [
        one.removeprefix("spec.").removeprefix("metadata.") for one in fields_of(answer)
    ]
    assert not Override.objects.exists()


@pytest.mark.parametrize("kind", ["tokens", "gateways", "people"])
def test_names_of_people_and_credentials_hide_nothing(installed: Secrets, kind: str) -> None:
    issued = tokens.issue(actor=SYSTEM, name="adm", role="admin", now=builders.now())
    more = {
        "tokens": {"role": "viewer"},
        "gateways": {},
        "people": {"role": "viewer", "password": "a-long-enough-password-9"},
    }
    answer = Caller(issued.token)("POST", f"/{kind}", {"name": "an\u202en"} | more[kind])
    assert (answer.status_code, fields_of(answer)) == (422, ["name"])


def test_the_note_of_a_claim_too(client: Any) -> None:
    client.force_login(builders.person("oncall"))
    client.post(reverse("claim"), {"act": "claim", "note": EVIL})
    assert Claim.objects.get().note == READ

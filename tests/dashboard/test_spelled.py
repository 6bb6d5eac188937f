"""An override that is copied makes the same override again."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta

import pytest
import yaml
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from controlplane.models import Override
from dashboard import spelled
from tests import builders

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)


def row(reason: str, provider: str = "openai") -> Override:
    at = builders.now()
    return Override(
        name="ovr-1", mode="ForceOpen", provider=provider, reason=reason, created_at=at,
        updated_at=at, expires_at=at + timedelta(minutes=30),
    )  # fmt: skip


@given(TEXT, TEXT)
def test_no_text_breaks_out_of_its_quotes(reason: str, provider: str) -> None:
    found = row(reason, provider)
    words = shlex.split(spelled.as_curl(found, "http://127.0.0.1:8000"))
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8000/api/v1/overrides"]
    assert json.loads(words[-1])["spec"] == spelled.spec(found)
    assert yaml.safe_load(spelled.as_yaml(found))["spec"] == spelled.spec(found)


@pytest.mark.django_db
def test_what_is_copied_is_accepted_by_the_api(oncall: Client) -> None:
    builders.circuit()
    found = row("stop it; rm -rf / 'now' \"$HOME\" `id`")
    body = shlex.split(spelled.as_curl(found, "http://x"))[-1]
    answer = oncall.post("/api/v1/overrides", body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    made = Override.objects.get()
    assert (made.mode, made.provider, made.reason) == ("ForceOpen", "openai", found.reason)
    assert made.expires_at - made.updated_at == timedelta(minutes=30)
    text = oncall.get(f"/overrides/{made.name}").content.decode()
    assert "Copy curl" in text
    assert "`id`" in text

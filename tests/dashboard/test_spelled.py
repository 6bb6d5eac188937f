"""An override that is copied makes the same override again."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.test import Client
from hypothesis import example, given
from hypothesis import strategies as st

from controlplane.cli import force
from controlplane.cli.program import _parser
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


@example("--", "openai", "", "", False)
@given(
    TEXT, TEXT, st.sampled_from(["", "-", "eu", "eu-west"]), st.sampled_from(["", "*x", "m/n@1"]),
    st.booleans(),
)  # fmt: skip
def test_the_command_line_reads_back_what_it_is_told(
    reason: str, provider: str, region: str, model: str, glass: bool
) -> None:
    found = row(reason, provider.replace("/", "").strip() or "p")
    found.model, found.region, found.gateway, found.break_glass = model, region, "chat", glass
    program, *words = shlex.split(spelled.as_cli(found))
    assert program == "switchgear"
    options = _parser().parse_args(words)
    assert force.VERBS[options.verb] == found.mode
    assert (options.lasts, options.watch) == ("30m", True)
    assert options.reason == reason or (reason == "--" and options.reason.strip() == reason)
    assert (options.break_glass, spelled.spec(found).get("breakGlass", False)) == (glass, glass)
    wanted = {"provider": found.provider, "model": model, "region": region, "gateway": "chat"}
    meant = {"model": "", "region": "", **force.selection(options)}
    assert {part: meant[part] for part in wanted} == wanted


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("", "", ""), "all"),
        (("openai", "", ""), "openai"),
        (("openai", "", "eu"), "openai/*@eu"),
        (("", "", "eu"), "*/*@eu"),
        (("", "gpt-4o", ""), "*/gpt-4o"),
        (("openai", "gpt-4o", "-"), "openai/gpt-4o@-"),
    ],
)
def test_a_wide_target_is_written_with_stars(parts: tuple[str, str, str], text: str) -> None:
    assert spelled.target(*parts) == text


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
    dialog = oncall.get(f"/overrides/{made.name}", headers={"HX-Request": "true"})
    assert ">curl</button>" in dialog.content.decode()
    page = oncall.get(f"/overrides/{made.name}").content.decode()
    for text in (dialog.content.decode(), page):
        assert "`id`" in text


@pytest.mark.django_db
def test_what_breaks_the_glass_is_copied_as_such_and_nothing_else_is(
    oncall: Client, settings: Any
) -> None:
    builders.circuit()
    form = {"mode": "ForceOpen", "provider": "openai", "minutes": "30", "reason": "now"}
    settings.TWO_PERSON = True
    asked = oncall.post("/overrides/typed", form).content.decode()
    broken = oncall.post("/overrides/typed", form | {"break_glass": "on"}).content.decode()
    for word in ("--break-glass", "breakGlass: true", "&quot;breakGlass&quot;: true"):
        assert (word in asked, word in broken) == (False, True), word
    settings.TWO_PERSON = False
    unruled = oncall.post("/overrides/typed", form | {"break_glass": "on"}).content.decode()
    assert "break-glass" not in unruled
    assert "breakGlass" not in unruled

"""What a newcomer to the terminal stumbles over: names as printed, and who refuses what."""

import re
from pathlib import Path
from typing import Any

import pytest

from controlplane.models import Instance, Override
from tests import builders
from tests.cli.test_cli import Terminal, fleet, force, only, terminal  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_name_is_taken_as_it_was_printed(terminal: Terminal) -> None:  # noqa: F811
    force(terminal)
    name = only().name
    assert terminal.run("get", "overrides", "-o", "name")[1] == f"override/{name}\n"
    status, said = terminal.run("extend", f"override/{name}", "--for", "2h", "--reason", "still")
    assert (status, only().generation) == (0, 2), said
    for verb in ("get", "describe"):
        status, said = terminal.run(verb, f"override/{name}")
        assert (status, name in said) == (0, True), said
        status, said = terminal.run(verb, "circuit/openai/gpt-4o")
        assert (status, "openai/gpt-4o" in said) == (0, True), said
    status, said = terminal.run("history", "policy/nobody")
    assert (status, "No BreakerPolicy is named 'nobody'" in said) == (3, True), said
    status, said = terminal.run("release", f"overrides/{name}", "--reason", "over")
    assert (status, said) == (0, f"override/{name} released\n")
    assert Override.objects.get().end_cause == "Released"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("release", "policy/default"), "policy/default is not an override"),
        (("describe", "overrides"), "name"),
        (("history", "policies"), "name"),
        (("delete", "policy"), "name"),
    ],
)
def test_a_name_that_cannot_be_meant_is_bad_use(
    terminal: Terminal,  # noqa: F811
    arguments: tuple[str, ...],
    said: str,
) -> None:
    status, text = terminal.run(*arguments)
    assert (status, said in text) == (2, True), text


def test_a_gateway_that_refuses_its_configuration_says_what_and_why(
    terminal: Terminal,  # noqa: F811
    fleet: list[Instance],  # noqa: F811
) -> None:
    kept = {"kind": "Policy", "name": "default", "verdict": "Applied", "generation": 1}
    refused: dict[str, Any] = {
        "kind": "Route",
        "name": "assistant",
        "verdict": "Rejected",
        "generation": 1,
        "reason": "UnknownTarget",
        "message": "this gateway's file has no provider 'mistral'",
        "field_path": "targets[1].provider",
    }
    Instance.objects.filter(pk=fleet[1].pk).update(items=[kept, refused])
    line = (
        "gateway/demo: host/1 refuses route/assistant: UnknownTarget at targets[1].provider:"
        " this gateway's file has no provider 'mistral'"
    )
    for arguments in (("get", "gateways"), ("describe", "gateway", "demo")):
        status, said = terminal.run(*arguments)
        assert (status, line in said) == (1, True), said
        assert "{'" not in said, said
    Instance.objects.filter(pk=fleet[1].pk).update(items=[kept])
    assert terminal.run("get", "gateways")[0] == 0


def test_who_is_named_already_is_told_what_to_do(terminal: Terminal) -> None:  # noqa: F811
    terminal.be("admin")
    builders.gateway("other")
    status, said = terminal.run("create", "gateway", "other")
    assert (status, "switchgear rotate gateway other" in said) == (5, True), said
    status, said = terminal.run("create", "token", "admin-cli")
    assert (status, "switchgear revoke token admin-cli" in said) == (5, True), said


def test_the_file_of_the_documentation_is_applied_as_it_stands(
    terminal: Terminal,  # noqa: F811
    tmp_path: Path,
) -> None:
    builders.circuit("groq", "llama-3.3-70b-versatile", "")
    terminal.be("admin")
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "settings.yaml"
    path.write_text(block, encoding="utf-8")
    status, said = terminal.run("apply", "-f", str(path))
    assert (status, said) == (0, "policies/groq-patient created\nroutes/chat created\n"), said
    assert terminal.run("diff", "-f", str(path))[0] == 0

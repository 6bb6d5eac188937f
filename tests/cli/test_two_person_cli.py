"""Asking, approving and breaking the glass from a terminal."""

import re
from typing import Any

import pytest

from controlplane.models import Override, PendingOverride
from tests.cli.test_cli import Terminal, fleet, terminal  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_no_instance_is_there_for_yet_is_not_called_a_request(
    terminal: Terminal,  # noqa: F811
) -> None:
    status, said = terminal.run(
        *("force-open", "openai", "-l", "tier=us", "--reason", "529s", "--watch")
    )
    name = Override.objects.get().name
    assert (status, f"{name} recorded" in said) == (1, True), said
    assert "no instance is in contact" in said
    assert "approve" not in said


def test_a_wide_force_is_asked_for_and_approved_by_another(
    terminal: Terminal,  # noqa: F811
    settings: Any,
) -> None:
    settings.TWO_PERSON = True
    wide = ("force-open", "openai", "--reason", "529s")
    status, said = terminal.run(*wide, "--watch")
    assert status == 1, said
    name = re.findall(r"switchgear approve (\S+) --watch", said)[0]
    assert "in force nowhere" in said
    assert f"switchgear approve {name}" in terminal.run("get", "overrides")[1]
    for look in (("get", "overrides", name), ("describe", "override", name)):
        status, said = terminal.run(*look)
        assert (status, name in said, "Traceback" in said) == (0, True, False), said
    status, said = terminal.run("get", "overrides", name, "--watch", "--timeout", "1")
    assert (status, "in force nowhere" in said) == (1, True), said
    assert terminal.run("approve", name)[0] == 6
    terminal.be("admin")
    status, said = terminal.run("approve", name)
    assert (status, f"overrides/{name} recorded" in said or f"{name} recorded" in said) == (0, True)
    assert Override.objects.get().name == name

    status, said = terminal.run("observe", "all", "--reason", "odd")
    second = PendingOverride.objects.get(decision="").name
    assert (status, terminal.run("withdraw", second)[0]) == (0, 0)
    assert terminal.run("approve", second)[0] == 5

    assert terminal.run("observe", "all", "--reason", "odd", "--break-glass")[0] == 0
    broken = Override.objects.get(break_glass=True).name
    assert terminal.run("acknowledge", broken)[0] == 6

"""The command line against a real server: what it prints, what it changes, how it exits."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.actions import tokens
from controlplane.actions.actor import SYSTEM
from controlplane.cli import main
from controlplane.cli.show import plain
from controlplane.models import AuditEntry, Gateway, GatewayToken, Instance, Override, Probe
from tests import builders

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fleet() -> list[Instance]:
    gateway = builders.gateway("demo", labels={"tier": "eu"})
    builders.circuit("openai", "gpt-4o", "")
    return [builders.instance(gateway, f"host/{n}") for n in range(3)]


class Terminal:
    """Somebody at a terminal; ``run`` gives the exit status and what was printed."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.setenv("SWITCHGEAR_URL", url)
        self.be("operator")

    def be(self, role: str) -> None:
        name = f"{role}-cli"
        issued = tokens.issue(actor=SYSTEM, name=name, role=role, now=builders.now())
        self._monkeypatch.setenv("SWITCHGEAR_TOKEN", issued.token)

    def run(self, *arguments: str) -> tuple[int, str]:
        self._capsys.readouterr()
        try:
            status = main(list(arguments))
        except SystemExit as error:
            status = int(error.code or 0)
        said = self._capsys.readouterr()
        return status, said.out + said.err


@pytest.fixture
def terminal(
    fleet: list[Instance], live_server: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Terminal:
    return Terminal(live_server.url, monkeypatch, capsys)


def force(terminal: Terminal, *more: str) -> tuple[int, str]:
    return terminal.run("force-open", "openai/gpt-4o", "--reason", "it burns", *more)


def only() -> Override:
    return Override.objects.get(ended_at=None)


def test_a_force_says_recorded_and_no_more(terminal: Terminal) -> None:
    status, said = force(terminal, "--for", "30m")
    assert status == 0, said
    row = only()
    assert (row.mode, row.provider, row.model, row.region) == ("ForceOpen", "openai", "gpt-4o", "")
    assert f"{row.name} recorded" in said
    assert "recorded is not enforced" in said
    status, said = terminal.run("get", "overrides")
    assert (status, row.name in said, "0/3" in said, "it burns" in said) == (0, True, True, True)


def test_the_default_time_is_filled_in(terminal: Terminal) -> None:
    force(terminal)
    row = only()
    assert (row.expires_at - row.created_at).total_seconds() == 3600


def test_watch_follows_to_every_instance_and_names_who_does_not(
    terminal: Terminal, fleet: list[Instance]
) -> None:
    force(terminal)
    row = only()
    builders.delivery(fleet[0], row)
    builders.delivery(fleet[1], row)
    refused = builders.delivery(fleet[2], row, "Rejected", reason="LocalFloorViolated")
    status, said = terminal.run("get", "override", row.name, "--watch")
    assert status == 1
    assert "2/3 enforced, 1 rejected: LocalFloorViolated (demo/host/2)" in said
    refused.verdict = "Applied"
    refused.save()
    status, said = terminal.run("get", "override", row.name, "--watch")
    assert (status, "3/3 enforced" in said) == (0, True)


def test_who_refuses_stands_in_the_list_on_standard_error_and_in_the_exit_status(
    terminal: Terminal, fleet: list[Instance]
) -> None:
    force(terminal)
    row = only()
    builders.delivery(fleet[0], row)
    told = {"reason": "OutOfRange", "message": "too wide", "field_path": "spec.provider"}
    for one in fleet[1:]:
        builders.delivery(one, row, "Rejected", **told)
    for arguments in (("get", "overrides"), ("describe", "override", row.name)):
        status, said = terminal.run(*arguments)
        assert status == 1, said
        assert "demo/host/1: OutOfRange at spec.provider: too wide" in said
    assert "2 OutOfRange" in terminal.run("get", "overrides")[1]
    assert json.loads(terminal.run("get", "overrides", "-o", "json")[1].partition("\noverride/")[0])
    status, said = terminal.run("get", "override", row.name, "--watch")
    assert (status, "refuses it: OutOfRange at spec.provider: too wide" in said) == (1, True)
    assert said.count("refuses it") == 1


def test_a_refusal_that_can_be_overridden_says_how(
    terminal: Terminal, fleet: list[Instance]
) -> None:
    force(terminal)
    row = only()
    for one in fleet:
        builders.delivery(one, row, "Rejected", reason="LocalFloorViolated", message="the last")
    status, said = terminal.run("get", "override", row.name, "--watch")
    assert (status, "--allow-last-healthy" in said) == (1, True)


def test_a_release_waits_for_those_that_enforced_it_alone(
    terminal: Terminal, fleet: list[Instance]
) -> None:
    force(terminal)
    row = only()
    builders.delivery(fleet[0], row)
    builders.delivery(fleet[1], row, "Rejected", reason="LocalFloorViolated")
    status, said = terminal.run("release", row.name, "--watch", "--timeout", "0.1")
    assert (status, "not lifted by all" in said) == (1, True)
    builders.delivery(fleet[0], row, lifted_at=builders.now())
    status, said = terminal.run("release", row.name, "--watch")
    assert status == 0, said
    assert "2/2 lifted, 1 never enforced it (rejected)" in said


def test_a_watched_list_is_the_table_once_and_then_what_changed(
    terminal: Terminal, fleet: list[Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    circuits = [builders.circuit("openai", model, "") for model in ("gpt-4o", "o3")]
    for circuit in circuits:
        builders.circuit_state(fleet[0], circuit)

    class Time:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds
            builders.circuit_state(fleet[0], circuits[1], "Open", cause="FailureRatio")

    monkeypatch.setattr("controlplane.cli.read.time", Time())
    status, said = terminal.run("watch", "circuits", "--timeout", "1")
    lines = said.splitlines()
    assert (status, len(lines)) == (0, 4), said
    assert (lines[0].split()[0], lines[-1].split()[:3]) == ("NAME", ["openai/o3", "Open", "1/1"])


def test_what_a_call_meets_is_shown_and_not_the_breaker_under_the_hand(
    terminal: Terminal, fleet: list[Instance]
) -> None:
    circuit = builders.circuit("openai", "gpt-4o", "")
    builders.circuit_state(fleet[0], circuit, "Closed", mode="ForceOpen", override_uid="x")
    said = terminal.run("get", "circuits", "-o", "wide")[1]
    assert "Open 1/1" in said
    assert said.splitlines()[1].split()[3] == "Auto"


def test_describe_says_what_observe_only_would_have_refused(
    terminal: Terminal, fleet: list[Instance]
) -> None:
    circuit = builders.circuit("openai", "gpt-4o", "")
    builders.circuit_state(fleet[0], circuit, mode="ObserveOnly", override_uid="x")
    said = terminal.run("describe", "circuit", "openai/gpt-4o")[1]
    assert said.startswith("ObserveOnly: would have refused 0 calls in the last 15 min\n")
    builders.rollup(fleet[0].gateway, circuit, would_refuse=1200)
    said = terminal.run("describe", "circuit", "openai/gpt-4o")[1]
    assert said.startswith("ObserveOnly: would have refused 1,200 calls in the last 15 min\n")


def test_a_hand_on_a_host_stands_under_the_overrides(
    terminal: Terminal, fleet: list[Instance]
) -> None:
    builders.local_override(fleet[0].gateway)
    said = terminal.run("get", "overrides")[1]
    assert "local: ForceOpen openai/* on the host host-a of demo by root (sudo ann), since" in said


def test_a_fault_is_said_once(terminal: Terminal) -> None:
    said = terminal.run("force-open", "openai", "--reason", "x", "--for", "25h")[1]
    assert said.count("lasts at most") == 1


def test_watch_gives_up_and_says_so(terminal: Terminal) -> None:
    status, said = force(terminal, "--watch", "--timeout", "0.1")
    assert (status, "not enforced by all" in said) == (1, True)


def test_taking_over_is_explicit(terminal: Terminal) -> None:
    force(terminal)
    first = only().name
    status, said = force(terminal)
    assert (status, "--take-over" in said, "it burns" in said) == (5, True, True)
    status, said = force(terminal, "--take-over")
    assert status == 0, said
    assert Override.objects.get(name=first).end_cause == "Replaced"


def test_what_a_restart_would_not_begin_with_is_told_beside_in_sync(terminal: Terminal) -> None:
    one = Instance.objects.earliest("id")
    one.checkpointed_generation = one.applied_generation - 1
    one.save()
    status, said = terminal.run("get", "gateways")
    assert (status, "InSync, 1 NotOnDisk" in said) == (0, True), said


def test_a_dry_run_writes_nothing(terminal: Terminal) -> None:
    status, said = force(terminal, "--dry-run")
    assert (status, "would be ForceOpen" in said, "instances: 3" in said) == (0, True, True)
    # A time and an amount as a person reads them: no millionths.
    assert re.search(r"^would be ForceOpen until [-0-9]+T[0-9:]+Z$", said, re.M), said
    assert re.search(r"^now: [0-9.]+ calls/s, £[0-9]+\.[0-9]{4}/min$", said, re.M), said
    assert not Override.objects.exists()


def test_a_wrong_name_keeps_no_other_override_in_force(terminal: Terminal) -> None:
    rows = [builders.override(name=f"o{n}", provider="openai", model=f"m{n}") for n in range(2)]
    status, said = terminal.run("release", "o0", "nobody", "o1", "--reason", "over")
    assert status == 3
    assert "override/o0 released" in said
    assert "override/o1 released" in said
    assert "nobody: " in said
    for row in rows:
        row.refresh_from_db()
        assert row.end_cause == "Released"


def test_release_extend_and_probe(terminal: Terminal) -> None:
    force(terminal)
    name = only().name
    assert terminal.run("extend", name, "--for", "2h", "--reason", "still")[0] == 0
    assert only().generation == 2
    assert terminal.run("release", name, "--reason", "over")[1] == f"override/{name} released\n"
    force(terminal)
    assert terminal.run("release", "--mine")[0] == 0
    assert not Override.objects.filter(ended_at=None).exists()
    status, said = terminal.run("probe", "openai", "--reason", "they say it is over")
    assert status == 0, said
    assert Probe.objects.get().provider == "openai"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("get", "breakers"), 2, "known: gateways"),
        (("get", "override", "nobody"), 3, "nobody"),
        (("force-open", "opnai", "--reason", "x"), 4, "nearest: openai"),
        (("force-open", "openai", "--reason", " "), 4, "reason"),
        (("force-open", "openai", "--reason", "x", "--for", "25h"), 4, "at most 1 d"),
        (("force-open", "openai", "--reason", "x", "--for", "soon"), 2, "--for"),
        (("force-open", "openai"), 2, "--reason"),
        (("release",), 2, "--mine"),
        (("create", "gateway", "other"), 6, "admin"),
        (("rollback", "circuits", "x", "--to", "1", "--reason", "x"), 2, "policies"),
    ],
)
def test_exit_statuses_are_for_scripts(
    terminal: Terminal, arguments: tuple[str, ...], status: int, said: str
) -> None:
    got, text = terminal.run(*arguments)
    assert (got, said in text) == (status, True), text


def test_nobody_answering_is_status_7(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_URL", "http://127.0.0.1:1")
    assert terminal.run("get", "circuits")[0] == 7


POLICY = """
kind: BreakerPolicy
metadata: {name: chat}
spec:
  openSeconds: 20
  match: {provider: openai}
"""


def test_apply_diff_history_and_rollback(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(POLICY)
    assert terminal.run("diff", "-f", str(file))[0] == 1
    assert terminal.run("apply", "-f", str(file), "--dry-run")[1] == (
        "policies/chat created (dry run)\n"
    )
    assert terminal.run("apply", "-f", str(file)) == (0, "policies/chat created\n")
    assert terminal.run("apply", "-f", str(file)) == (0, "policies/chat unchanged\n")
    assert terminal.run("diff", "-f", str(file)) == (0, "")
    file.write_text(POLICY.replace("20", "30"))
    status, said = terminal.run("diff", "-f", str(file))
    assert (status, "-openSeconds: 20" in said, "+openSeconds: 30" in said) == (1, True, True)
    assert terminal.run("apply", "-f", str(file))[1] == "policies/chat configured\n"
    status, said = terminal.run("rollback", "policy", "chat", "--to", "1", "--reason", "slow")
    assert (status, "generation 3" in said) == (0, True)
    status, said = terminal.run("apply", "-f", str(file))
    assert (status, "token:operator-cli" in said) == (5, True)
    assert ("openSeconds is token:operator-cli's" in said, "open_seconds" in said) == (True, False)
    status, said = terminal.run("diff", "-f", str(file))
    assert (status, "+openSeconds: 30" in said, "written by" in said) == (5, True, True), said
    assert terminal.run("apply", "-f", str(file), "--force")[0] == 0
    said = terminal.run("history", "policy", "chat")[1]
    assert "rollback" in said
    assert "openSeconds" in said


def test_what_get_prints_can_be_applied(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(POLICY)
    terminal.run("apply", "-f", str(file))
    file.write_text(terminal.run("get", "policies", "-o", "yaml")[1])
    assert terminal.run("apply", "-f", str(file)) == (0, "policies/chat unchanged\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Override\nmetadata: {name: x}\nspec: {}\n", "not applied from a file"),
        ("kind: BreakerPolicy\nspec: {}\n", "metadata.name"),
        ("kind: [", "not YAML"),
        ("", "no object"),
        ("just text", "expected kind"),
        ("!!python/object/apply:os.system [true]", "not YAML"),
    ],
)
def test_a_file_that_cannot_be_applied_says_why(
    terminal: Terminal, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    status, told = terminal.run("apply", "-f", str(file))
    assert (status, said in told) == (2, True), told


def test_one_bad_object_does_not_stop_its_neighbours(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(POLICY.replace("20", "-1") + "---" + POLICY.replace("chat", "fine"))
    status, said = terminal.run("apply", "-f", str(file))
    assert (status, "openSeconds" in said, "policies/fine created" in said) == (4, True, True)


def test_diff_tries_every_object_and_says_which_field_was_meant(
    terminal: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        POLICY.replace("openSeconds", "openSecond") + "---" + POLICY.replace("chat", "b")
    )
    status, said = terminal.run("diff", "-f", str(file))
    assert status == 4
    assert "policies/chat: " in said
    assert "did you mean openSeconds?" in said
    assert "+openSeconds: 20" in said


def test_what_was_applied_is_followed(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(POLICY)
    status, said = terminal.run("apply", "-f", str(file), "--watch", "--timeout", "0.1")
    assert (status, "policies/chat: 0/3 enforced, 3 recorded" in said) == (1, True)
    assert terminal.run("apply", "-f", str(file), "--watch") == (0, "policies/chat unchanged\n")


@pytest.mark.parametrize("kind", ["gateways", "circuits", "overrides", "policies", "probes"])
@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name"])
def test_every_kind_in_every_form(terminal: Terminal, kind: str, form: str) -> None:
    status, said = terminal.run("get", kind, "-o", form)
    assert status == 0, said
    if form == "json":
        assert json.loads(said)["kind"].endswith("List")
    if form == "yaml":
        assert yaml.safe_load(said)["kind"].endswith("List")


def test_describe_shows_everything(terminal: Terminal) -> None:
    status, said = terminal.run("describe", "gateway", "demo")
    assert (status, "host/0" in said, "epoch:" in said) == (0, True, True)


def test_an_admin_creates_a_gateway_and_gets_its_token_once(terminal: Terminal) -> None:
    terminal.be("admin")
    status, said = terminal.run("create", "gateway", "other", "--label", "tier=us")
    assert (status, "sgg_" in said) == (0, True)
    assert Gateway.objects.get(name="other").labels == {"tier": "us"}
    status, said = terminal.run("create", "token", "ci", "--role", "operator")
    assert (status, "sgs_" in said) == (0, True)


def test_credentials_are_rotated_with_overlap(terminal: Terminal) -> None:
    terminal.be("admin")
    status, said = terminal.run("create", "token", "ci", "--role", "viewer", "--for", "90d")
    assert (status, "sgs_" in said) == (0, True)
    said = terminal.run("get", "tokens")[1]
    assert [line.split()[2] for line in said.splitlines() if line.startswith("ci ")] == ["Valid"]
    assert terminal.run("revoke", "token", "ci")[0] == 0
    assert "Revoked" in terminal.run("get", "tokens")[1]
    terminal.run("rotate", "gateway", "demo")
    status, said = terminal.run("rotate", "gateway", "demo", "--for", "90d")
    assert (status, "sgg_" in said, "revoke gateway demo" in said) == (0, True, True)
    older, newer = GatewayToken.objects.order_by("id")
    assert terminal.run("revoke", "gateway", "demo", str(older.pk))[0] == 0
    lines = terminal.run("revoke", "gateway", "demo")[1].splitlines()[1:]
    states = {int(line.split()[0]): line.split()[1] for line in lines}
    assert states == {older.pk: "Revoked", newer.pk: "Valid"}
    assert terminal.run("revoke", "gateway", "demo", "999999")[0] == 3
    terminal.be("viewer")
    assert terminal.run("get", "tokens")[0] == 6


def test_the_audit_is_searched_and_exported(terminal: Terminal) -> None:
    force(terminal)
    said = terminal.run("audit", "--search", "BURNS")[1]
    assert (said.count("\n"), "token:operator-cli" in said) == (2, True)
    assert "it burns" not in terminal.run("audit", "--actor", "nobody")[1]
    status, said = terminal.run("audit", "-o", "csv")
    lines = said.splitlines()
    assert status == 0
    assert lines[0].startswith("id,at,actor,")
    assert len(lines) == AuditEntry.objects.count() + 1
    assert "it burns" in said


def test_a_report_is_printed(terminal: Terminal) -> None:
    status, said = terminal.run("report", "--by", "route", "-o", "wide")
    assert (status, "£/TASK BEFORE" in said, "(total)" in said) == (0, True, True), said
    assert terminal.run("report", "-o", "csv")[1].startswith("week,")


def test_a_terminal_is_told_nothing_that_it_would_obey(terminal: Terminal) -> None:
    evil = "red \x1b[31m\x1b]0;title\x07 and \u202eback\r"
    status, said = terminal.run("force-open", "openai", "--reason", evil)
    assert status == 0, said
    for arguments in (("get", "overrides"), ("describe", "override", only().name), ("audit",)):
        said = terminal.run(*arguments)[1]
        assert "red" in said
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(said), arguments
    assert plain("a\x1b[2Jb\nc") == "a?[2Jb?c"


def test_the_config_file_is_read_and_must_be_ours_alone(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        f'url = "{os.environ["SWITCHGEAR_URL"]}"\ntoken = "{os.environ["SWITCHGEAR_TOKEN"]}"\n'
    )
    monkeypatch.delenv("SWITCHGEAR_URL")
    monkeypatch.delenv("SWITCHGEAR_TOKEN")
    monkeypatch.setenv("SWITCHGEAR_CONFIG", str(file))
    file.chmod(0o644)
    assert terminal.run("get", "circuits")[0] == 2
    file.chmod(0o600)
    assert terminal.run("get", "circuits")[0] == 0
    file.unlink()
    status, said = terminal.run("get", "circuits")
    assert (status, "SWITCHGEAR_URL" in said) == (2, True)


def test_it_loads_nothing_but_the_standard_library_and_our_own() -> None:
    code = (
        "import sys; before = set(sys.modules); import controlplane.cli;"
        "known = {'controlplane', 'msgspec', *sys.stdlib_module_names};"
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} - known))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

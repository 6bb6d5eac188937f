"""What needs no control plane: the words of every field, and the shells' completion."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli import explain, main
from controlplane.cli.kinds import KINDS
from controlplane.wire.desired import Breaker, Bucket, RouteItem, RouteTarget


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither an address nor a token."""
    for name in ("SWITCHGEAR_URL", "SWITCHGEAR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWITCHGEAR_CONFIG", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("words", "struct"),
    [
        (explain.POLICY, Breaker),
        (explain.BUDGET, Bucket),
        (explain.ROUTE | {"uid": "", "name": "", "generation": ""}, RouteItem),
        (explain.TARGET, RouteTarget),
    ],
)
def test_every_field_of_the_contract_has_words(words: dict[str, str], struct: Any) -> None:
    assert set(words) == set(struct.__struct_fields__)


@pytest.mark.parametrize("kind", [kind.names[-1] for kind in KINDS])
def test_every_kind_is_explained(kind: str, capsys: Any) -> None:
    assert main(["explain", kind]) == 0
    assert len(capsys.readouterr().out) > 60


def test_a_field_with_its_default(capsys: Any) -> None:
    assert main(["explain", "policy.openSeconds"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].split()[:2] == ["openSeconds", "10"]
    assert main(["explain", "policy.nothing"]) == 2
    assert main(["explain", "breaker"]) == 2


def complete(tmp_path: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    script = tmp_path / "completion.bash"
    called = tmp_path / "switchgear"
    called.write_text(
        '#!/bin/sh\n[ "$2" = overrides ] && echo override/ov-1 && echo override/ov-2\n'
    )
    called.chmod(0o755)
    line = " ".join(f'"{word}"' for word in ("switchgear", *words))
    ask = (
        f'PATH="{tmp_path}:$PATH"; source "{script}"; COMP_WORDS=({line});'
        f" COMP_CWORD={len(words)}; _switchgear; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    ran = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return set(ran.stdout.split())


def test_bash_completes_verbs_kinds_options_and_names(tmp_path: Path, capsys: Any) -> None:
    assert main(["completion", "bash"]) == 0
    (tmp_path / "completion.bash").write_text(capsys.readouterr().out)
    assert complete(tmp_path, "force-o") == {"force-open"}
    assert {"circuits", "overrides"} <= complete(tmp_path, "get", "")
    assert "--take-over" in complete(tmp_path, "force-open", "--t")
    assert complete(tmp_path, "release", "ov-2") == {"ov-2"}
    assert complete(tmp_path, "describe", "overrides", "ov") == {"ov-1", "ov-2"}


def test_zsh_gets_the_same_by_its_own_bridge(capsys: Any) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit")

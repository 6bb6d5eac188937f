"""All of it at once, as `make up` runs it: up, killed, up again with its data, ended clean."""

import json
import signal
import stat
from pathlib import Path

import psycopg
import pytest

from controlplane.local.probe import answers
from controlplane.local.spawn import command_line, wait_until
from tests.product import PATIENCE, clean_environment, make_up

pytestmark = pytest.mark.e2e


@pytest.fixture
def environ(open_folder: Path) -> dict[str, str]:
    """A var folder and ports of its own, and nothing of the test session's settings."""
    return clean_environment(open_folder / "var")


def children(var: Path) -> list[int]:
    return [json.loads(note.read_text())["pid"] for note in (var / "run").glob("*.json")]


def count_attempts(var: Path) -> int:
    address = json.loads((var / "environment.json").read_text())["DATABASE_URL"]
    with psycopg.connect(address) as connection:
        row = connection.execute("SELECT count(*) FROM attempt").fetchone()
    assert row is not None
    return int(row[0])


def test_comes_up_survives_a_kill_keeps_its_data_and_ends_clean(
    environ: dict[str, str], tmp_path: Path
) -> None:
    var = Path(environ["SWITCHGEAR_VAR"])
    web = f"http://127.0.0.1:{environ['SWITCHGEAR_PORT']}"
    gateway = f"http://127.0.0.1:{environ['SWITCHGEAR_GATEWAY_PORT']}"
    with make_up(environ, tmp_path / "first") as program:
        assert answers(f"{web}/healthz", f"{web}/readyz", f"{gateway}/healthz")
        credentials = json.loads((var / "credentials.json").read_text())
        assert stat.S_IMODE((var / "credentials.json").stat().st_mode) == 0o600
        assert credentials["url"] == web
        assert credentials["admin_password"] in (tmp_path / "first").read_text()
        assert wait_until(lambda: count_attempts(var) > 0, PATIENCE, every=0.5)
        seen, started = count_attempts(var), children(var)
        assert len(started) >= 6
        program.kill()
        program.wait(10)
        assert wait_until(lambda: not any(map(command_line, started)), 30)

    with make_up(environ, tmp_path / "second") as program:
        assert count_attempts(var) >= seen
        assert json.loads((var / "credentials.json").read_text()) == credentials
        started = children(var)
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 0
        assert not any(map(command_line, started))
    for name in ("first", "second"):
        assert "Traceback" not in (tmp_path / name).read_text()
    assert not answers(f"{web}/healthz")

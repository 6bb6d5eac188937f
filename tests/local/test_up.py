"""`make up` as a program: it refuses clearly, in one line each, and never with a traceback."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.local.environment import keep, recall, secret_key
from controlplane.local.errors import LaunchError
from controlplane.local.locks import FolderLock
from controlplane.local.options import read_options
from controlplane.local.parts import keep_gateway_configuration
from controlplane.local.ports import remembered_port

CHECKOUT = Path(__file__).resolve().parents[2]


def up(var: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHGEAR")}
    return subprocess.run(
        [sys.executable, "-m", "controlplane.local"],
        cwd=CHECKOUT,
        env={**clean, "SWITCHGEAR_VAR": str(var), "DEMO": "0", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_busy_port_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = up(tmp_path, SWITCHGEAR_PORT=str(port))
    assert ended.returncode == 1
    assert f"Port {port} on 127.0.0.1 is in use" in ended.stdout
    assert f"make up SWITCHGEAR_PORT={port + 1}" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("host", ["300.1.1.1", "no.such.host.invalid", "192.0.2.1"])
def test_host_that_is_not_ours_is_named(tmp_path: Path, host: str) -> None:
    ended = up(tmp_path, SWITCHGEAR_HOST=host)
    assert ended.returncode == 1
    assert f"SWITCHGEAR_HOST='{host}': this machine cannot listen there" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SWITCHGEAR_REPORT_ZONE", "Mars/Olympus"),
        ("SWITCHGEAR_REPORT_ZONE", "../../etc/passwd"),
        ("SWITCHGEAR_LOG_LEVEL", "loud"),
        ("SWITCHGEAR_SECRET_KEY", "short"),
        ("SWITCHGEAR_HTTPS", "perhaps"),
        ("SWITCHGEAR_RAW_RETENTION_DAYS", "-1"),
        ("DATABASE_URL", "bogus"),
        ("DATABASE_URL", "postgresql://a:b@127.0.0.1:port/c"),
    ],
)
def test_command_names_an_odd_variable_in_one_line(tmp_path: Path, name: str, value: str) -> None:
    good = {
        "DATABASE_URL": "postgresql://a:b@127.0.0.1:1/c",
        "SWITCHGEAR_SECRET_KEY": "k" * 50,
        "SWITCHGEAR_VAR": str(tmp_path),
    }
    ended = subprocess.run(
        [sys.executable, "manage.py", "migrate"],
        cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], **good, name: value},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(name)
    assert ended.stderr.count("\n") == 1


def test_second_start_names_the_first(tmp_path: Path) -> None:
    with FolderLock(tmp_path / "up.lock", ""):
        ended = up(tmp_path)
    assert ended.returncode == 1
    assert f"already running in {tmp_path} (process {os.getpid()})" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr


def test_stale_lock_file_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "up.lock").write_text("1\n")
    with FolderLock(tmp_path / "up.lock", "held by {pid}") as lock:
        assert lock.path.read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SWITCHGEAR_PORT", "0"),
        ("SWITCHGEAR_PORT", "65536"),
        ("SWITCHGEAR_PORT", "٨٠٠٠"),
        ("SWITCHGEAR_GATEWAY_PORT", "http"),
        ("DEMO", "no"),
    ],
)
def test_odd_option_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(LaunchError, match=name):
        read_options({name: value})


def test_same_port_twice_is_refused() -> None:
    with pytest.raises(LaunchError, match="both 8800"):
        read_options({"SWITCHGEAR_PORT": "8800"})
    assert read_options({"SWITCHGEAR_PORT": "8800", "DEMO": "0"}).port == 8800


def test_remembered_port_is_kept_until_it_is_taken(tmp_path: Path) -> None:
    note = tmp_path / "port"
    first = remembered_port(note)
    assert remembered_port(note) == first
    with socket.create_server(("127.0.0.1", first)):
        second = remembered_port(note)
    assert second != first
    assert note.read_text() == f"{second}\n"


@pytest.mark.parametrize("content", ["", "seven", "80", "70000"])
def test_damaged_port_note_is_replaced(tmp_path: Path, content: str) -> None:
    note = tmp_path / "port"
    note.write_text(content)
    assert 1024 <= remembered_port(note) <= 65535


def test_secret_key_is_made_once_and_private(tmp_path: Path) -> None:
    key = secret_key(tmp_path)
    assert len(key) >= 50
    (tmp_path / "secret_key").chmod(0o644)
    assert secret_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


def test_kept_environment_fills_gaps_only(tmp_path: Path) -> None:
    keep(tmp_path, {"DATABASE_URL": "kept", "BROKER_URL": "kept"})
    environ = {"SWITCHGEAR_VAR": str(tmp_path), "BROKER_URL": "mine"}
    recall(environ)
    assert (environ["DATABASE_URL"], environ["BROKER_URL"]) == ("kept", "mine")
    assert stat.S_IMODE((tmp_path / "environment.json").stat().st_mode) == 0o600


def test_unwritable_var_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = up(tmp_path / "file" / "var")
    assert ended.returncode == 1
    assert "Cannot start. Failed: making" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr


def test_address_for_people_is_reachable() -> None:
    assert read_options({"SWITCHGEAR_HOST": "0.0.0.0"}).url == "http://127.0.0.1:8000"
    assert read_options({"SWITCHGEAR_HOST": "::1"}).url == "http://[::1]:8000"


def test_gateway_configuration_follows_the_demo_until_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "gateway" / "demo.toml"
    source.parent.mkdir()
    monkeypatch.setattr("controlplane.local.parts.CHECKOUT", tmp_path)
    options = read_options({"SWITCHGEAR_VAR": str(tmp_path / "var")})
    (tmp_path / "var" / "run").mkdir(parents=True)
    copy = tmp_path / "var" / "gateway.toml"
    heard: list[str] = []
    for text in ("first", "second"):
        source.write_text(text)
        keep_gateway_configuration(options, heard.append)
        assert copy.read_text() == text
    copy.write_text("mine")
    source.write_text("third")
    keep_gateway_configuration(options, heard.append)
    assert copy.read_text() == "mine"
    assert heard == [f"{copy} was edited; it is used as it is"]

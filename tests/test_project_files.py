"""The project's own papers: locks, licences, deployment files and documents stay true."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = ["requirements.lock", "requirements-dev.lock", "requirements-gateway.lock"]


def direct_dependencies() -> set[str]:
    project = PYPROJECT["project"]
    lines = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        lines += extra
    return {re.match(r"[a-zA-Z0-9_.-]+", line).group().lower() for line in lines}


def locked(name: str) -> set[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", text, re.MULTILINE))


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_hashes_and_names_no_registry(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^--", text, re.MULTILINE)
    for entry in re.split(r"\n(?=[a-z0-9])", text.strip()):
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_every_direct_dependency_is_locked_and_justified() -> None:
    documented = set(
        re.findall(
            r"^\| ([a-z0-9-]+) \|", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE
        )
    ) - {"package"}
    assert documented == direct_dependencies()
    assert direct_dependencies() <= locked("requirements-dev.lock")


def test_the_gateway_alone_installs_no_django() -> None:
    assert not {n for n in locked("requirements-gateway.lock") if "django" in n or n == "celery"}


def test_importing_the_gateway_loads_no_django() -> None:
    code = (
        "import pkgutil, sys, gateway\n"
        "for m in pkgutil.walk_packages(gateway.__path__, 'gateway.'):\n"
        "    if not m.name.endswith('__main__'): __import__(m.name)\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('django', 'celery', 'psycopg')]\n"
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_imports_run_one_way() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_compose_file_starts_the_same_commands_as_one_machine() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert {"postgres", "broker", "setup", "web", "worker", "beat", "gateway"} == set(
        compose["services"]
    )
    for name, service in compose["services"].items():
        assert ("image" in service) != ("build" in service), name
        for needed in service.get("depends_on", {}):
            assert needed in compose["services"], f"{name} waits for {needed}"


def test_dockerfile_copies_what_exists() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source


def test_every_variable_of_the_settings_is_documented() -> None:
    read = set()
    for path in [ROOT / "controlplane/settings.py", *(ROOT / "controlplane/local").rglob("*.py")]:
        read |= set(re.findall(r'"(SWITCHGEAR_[A-Z_]+|DATABASE_URL|BROKER_URL)"', path.read_text()))
    documented = set(re.findall(r"`([A-Z_]+)`", (ROOT / "docs/operating.md").read_text()))
    internal = {"SWITCHGEAR_SIMULATOR_URL", "SWITCHGEAR_URL"}
    assert read - internal <= documented


def test_design_sections_that_code_refers_to_exist() -> None:
    text = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE))
    for top in ("controlplane", "dashboard", "workers", "gateway"):
        for path in (ROOT / top).rglob("*.py"):
            for named in re.findall(r"design (\d+(?:\.\d+)?)\b", path.read_text()):
                assert named in sections, f"{path}: design {named}"

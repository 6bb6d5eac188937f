"""Run case files: ``pytest tests/cases --cases DIR`` (default: this directory).

The contract of an adapter
--------------------------
Every line of every ``*.jsonl`` in DIR, sub-folders too, is one test; its id is the case's ``id``.
A ``*.json`` may also hold one array of cases. The line's
``group`` names the adapter, ``adapters/<group>.py``, which has

``run(case) -> dict``
    The results of the real product for ``case["input"]``, under the keys of
    ``case["expected"]``. A key of ``expected`` that the result lacks fails the test. Raise, and the
    test fails. Written ``run(case, request)`` it also gets pytest's ``request`` and can ask for
    fixtures (a database, a browser) with ``request.getfixturevalue``.
``NOT_ASSERTED: dict[str, str]`` (optional)
    Fields of ``expected`` that are never compared, each with the reason; shown at the end of the
    run.

How results are compared is in ``comparison.py``. Cases that are not yet due stand in
``not_yet_due.txt``, one id a line: they are ``xfail(strict=True)``, so one that begins to pass
must leave the list.

Invariant: nothing in DIR is skipped in silence. A case file that cannot be read, a group without
an adapter, a case twice and a DIR without cases are errors. No database is started unless there
are cases of the groups in ``WITH_DATABASE``.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .comparison import compare, contested_paths, is_sentence

HERE = Path(__file__).parent
GROUPS = ("classification", "retry_hints", "usage_cost", "breaker_scenarios", "control_plane")
WITH_DATABASE = frozenset({"control_plane"})
REPORTED = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases", metavar="DIR", default=None, help="directory of case files (*.jsonl) to run"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[REPORTED] = []


def read_cases(directory: Path) -> Iterator[dict[str, Any]]:
    """Every case in ``directory``, file by file. Raises ``pytest.UsageError`` naming the line."""
    files = sorted(p for p in directory.rglob("*") if p.suffix in (".json", ".jsonl"))
    if not files:
        raise pytest.UsageError(f"--cases {directory}: no *.jsonl files there")
    seen: dict[str, str] = {}
    for file in files:
        for where, found in _found_in(file):
            case = _checked(found, where)
            if case["id"] in seen:
                raise pytest.UsageError(f"{where}: {case['id']} is also at {seen[case['id']]}")
            seen[case["id"]] = where
            yield case
    if not seen:
        raise pytest.UsageError(f"--cases {directory}: the files there hold no cases")


def _found_in(file: Path) -> Iterator[tuple[str, Any]]:
    """Each JSON value of a file, and where it stands."""
    try:
        text = file.read_text("utf-8-sig")
    except ValueError as error:
        raise pytest.UsageError(f"{file}: not UTF-8: {error}") from error
    if file.suffix == ".json" and text.lstrip().startswith("["):
        for number, found in enumerate(_parsed(text, str(file)), 1):
            yield f"{file}, case {number}", found
        return
    # Not splitlines(): it also parts at U+2028 and its like, which JSON text may hold.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{file}:{number}", _parsed(line, f"{file}:{number}")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise pytest.UsageError(f"{where}: not one JSON object a line: {error}") from error


def _checked(case: Any, where: str) -> dict[str, Any]:
    missing = {"id", "group", "input", "expected"} - set(case if isinstance(case, dict) else ())
    if missing:
        raise pytest.UsageError(f"{where}: a case needs {', '.join(sorted(missing))}")
    if case["group"] not in GROUPS:
        raise pytest.UsageError(
            f"{where}: unknown group {case['group']!r}; known: {', '.join(GROUPS)}"
        )
    return dict(case) | {"id": str(case["id"])}


def not_yet_due() -> frozenset[str]:
    """The ids listed in ``not_yet_due.txt``."""
    lines = (HERE / "not_yet_due.txt").read_text("utf-8").splitlines()
    return frozenset(filter(None, (line.partition("#")[0].strip() for line in lines)))


def marks_of(case: dict[str, Any], waiting: frozenset[str]) -> list[pytest.MarkDecorator]:
    """A case that waits is expected to fail; one of the control plane's has an empty database."""
    marks = []
    if case["id"] in waiting:
        marks.append(pytest.mark.xfail(strict=True, reason="not yet due"))
    if case["group"] in WITH_DATABASE:
        # A mark, because pytest-django makes databases only for tests that carry one.
        marks.append(pytest.mark.django_db(transaction=True))
    return marks


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.getoption("--cases", default=None)
    directory = Path(chosen) if chosen else HERE
    if not directory.is_dir():
        raise pytest.UsageError(f"--cases {directory}: not a directory")
    waiting = not_yet_due()
    metafunc.parametrize(
        "case",
        [
            pytest.param(case, id=case["id"], marks=marks_of(case, waiting))
            for case in read_cases(directory)
        ],
    )


@pytest.fixture
def differences(request: pytest.FixtureRequest) -> Any:
    """A function that runs a case through its adapter and returns what is not as expected."""

    def run(case: dict[str, Any]) -> list[str]:
        adapter = importlib.import_module(f"{__package__}.adapters.{case['group']}")
        wants_request = len(inspect.signature(adapter.run).parameters) > 1
        result = adapter.run(case, request) if wants_request else adapter.run(case)
        not_asserted: dict[str, str] = getattr(adapter, "NOT_ASSERTED", {})
        expected = {k: v for k, v in case["expected"].items() if k not in not_asserted}
        found = compare(expected, result, case.get("accept") or {})
        prose = {k: v for k, v in expected.items() if k not in result and is_sentence(v)}
        not_asserted = not_asserted | prose
        contested = contested_paths(case)
        reported = request.config.stash[REPORTED]
        reported.extend(f"{case['id']}: contested: {d}" for d in found if d.within(contested))
        reported.extend(
            f"{case['id']}: {field} not asserted: {reason}"
            for field, reason in not_asserted.items()
            if reason and field in case["expected"]
        )
        return [str(d) for d in found if not d.within(contested)]

    return run


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reported = config.stash.get(REPORTED, [])
    if reported and config.get_verbosity() >= 1:
        terminalreporter.section("cases: reported, not failed")
        for line in reported:
            terminalreporter.line(line)
    elif reported:
        terminalreporter.line(f"cases: {len(reported)} fields reported, not failed (-v lists them)")

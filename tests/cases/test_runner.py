"""The runner skips nothing in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import GROUPS, HERE, not_yet_due, read_cases


def line(**changes: Any) -> str:
    case = {"id": "A-1", "group": GROUPS[0], "input": {}, "expected": {}}
    return json.dumps(case | changes)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.jsonl", line(group="odd"), "unknown group 'odd'"),
        ("a.jsonl", line() + "\n" + line(), "A-1 is also at"),
        ("a.jsonl", "{not json", "not one JSON object a line"),
        ("a.jsonl", "[]", "a case needs"),
        ("a.json", json.dumps([1]), "a case needs"),
        ("a.jsonl", "\n", "hold no cases"),
        ("a.txt", line(), "no *.jsonl files"),
    ],
)
def test_it_refuses_what_it_cannot_run(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(pytest.UsageError) as refused:
        list(read_cases(tmp_path))
    assert complaint in str(refused.value)


def test_it_takes_a_group_from_the_line_not_from_the_file_name(tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text(line() + "\n" + line(id="A-2", group=GROUPS[1]), "utf-8")
    assert [case["id"] for case in read_cases(tmp_path)] == ["A-1", "A-2"]


def test_the_list_of_cases_not_yet_due_names_only_cases_that_exist() -> None:
    assert not_yet_due() <= {case["id"] for case in read_cases(HERE)}

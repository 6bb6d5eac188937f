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
        ("a.json", "[" + line() + ",", "not one JSON object a line"),
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


def test_it_finds_cases_below_its_directory_with_a_mark_of_byte_order(tmp_path: Path) -> None:
    (tmp_path / "more" / "deep").mkdir(parents=True)
    (tmp_path / "more" / "deep" / "a.jsonl").write_text(line(), "utf-8-sig")
    assert [case["id"] for case in read_cases(tmp_path)] == ["A-1"]


def test_a_text_may_hold_what_parts_lines_elsewhere(tmp_path: Path) -> None:
    text = json.dumps(
        {"id": "A-1", "group": GROUPS[0], "input": {"body": "a\u2028b\x85c"}, "expected": {}},
        ensure_ascii=False,
    )
    (tmp_path / "a.jsonl").write_text(text + "\r\n", "utf-8", newline="")
    assert [case["input"]["body"] for case in read_cases(tmp_path)] == ["a\u2028b\x85c"]


def test_a_json_file_may_hold_one_array_of_cases(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(f"[\n{line()},\n{line(id=2)}\n]", "utf-8")
    assert [case["id"] for case in read_cases(tmp_path)] == ["A-1", "2"]


def test_the_list_of_cases_not_yet_due_names_only_cases_that_exist() -> None:
    assert not_yet_due() <= {case["id"] for case in read_cases(HERE)}

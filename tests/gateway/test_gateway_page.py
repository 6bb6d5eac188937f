"""docs/gateway.md names every key that gateway.toml may have, with its default, and no other."""

import re
from pathlib import Path
from typing import Any

import pytest

from gateway import answers
from gateway.config_file import parse
from gateway.table import _REQUIRED, Table

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
WHOLE = """
[gateway]
name = "edge"
[control_plane]
url = "http://127.0.0.1:1"
token = "t"
[limits]
[[callers]]
key_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
tenant = "t"
[[providers]]
name = "p"
base_url = "http://127.0.0.1:1"
keys = [{ name = "k", secret = "s" }]
[[routes]]
name = "r"
targets = [{ provider = "p", model = "m" }]
"""
Asked = dict[tuple[str, str], Any]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every table and key that reading a file asks for, with its default."""
    found: Asked = {}
    take, has = Table._take, Table.has

    def noting(table: Table, key: str, default: Any) -> Any:
        found[re.sub(r"\[\d+\]", "", table._path), key] = default
        return take(table, key, default)

    def noting_has(table: Table, key: str) -> bool:
        found.setdefault((re.sub(r"\[\d+\]", "", table._path), key), None)
        return has(table, key)

    monkeypatch.setattr(Table, "_take", noting)
    monkeypatch.setattr(Table, "has", noting_has)
    parse(WHOLE, {})
    return {where: default for where, default in found.items() if where[0]}


def rows() -> dict[tuple[str, str], str]:
    """Table and key → the page's row."""
    found = {}
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        named = re.match(r"`\[+([a-z_.]+)\]+`", section)
        for key, rest in re.findall(r"^\| `([a-z0-9_]+)` \|(.*)$", section, re.MULTILINE):
            if named:
                found[named[1], key] = rest
    return found


def test_the_page_has_every_key_and_no_other(asked: Asked) -> None:
    assert len(asked) > 40
    assert set(rows()) == set(asked)


def test_the_page_tells_the_defaults(asked: Asked) -> None:
    told = rows()
    for where, default in asked.items():
        default_told = told[where].split("|")[1].strip()
        if default is _REQUIRED:
            assert default_told == "required", where
        elif isinstance(default, bool) and where[1] != "require_key":
            assert default_told == str(default).lower(), where
        elif isinstance(default, int | float) and not isinstance(default, bool):
            mib = f"{default / 2**20:g} MiB"
            assert default_told in (f"{default:g}", mib), where
        elif isinstance(default, str) and default:
            assert default_told == default, where


def test_the_page_names_every_header_of_an_answer() -> None:
    names = answers.decision_headers("r", 1, "first", None) | answers.no_retry(1.0)
    for name in [*names, "x-switchgear-circuit"]:
        assert f"`{name}" in PAGE, name

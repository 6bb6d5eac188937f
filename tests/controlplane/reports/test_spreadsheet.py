"""CSV that opens as what it is."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.reports.spreadsheet import cell, document, plain


@pytest.mark.parametrize(
    "text",
    [
        *("=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", "  @x"),
        *("\ufeff=1", "\u200b=1", "\u2060 \u200e@x", "\u202e-1"),
    ],
)
def test_a_formula_becomes_text(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["openai/gpt-4.1@eu", "a=b", "1-2", "", "it's"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert cell(text) == text


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, ""),
        (Decimal("-0.02"), "-0.02"),
        (Decimal("4.25E-5"), "0.0000425"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1.500"), "1.5"),
        (Decimal("0E-12"), "0"),
        (0.1, "0.1"),
        (1e-07, "0.0000001"),
        (12, "12"),
        (1200, "1200"),
    ],
)
def test_a_number_goes_out_in_full(value: Decimal | float | None, written: str) -> None:
    assert cell(value) == written


@given(st.decimals(allow_nan=False, allow_infinity=False, places=20))
def test_a_number_reads_back_exactly(value: Decimal) -> None:
    assert Decimal(plain(value)) == value
    assert "E" not in plain(value)


rows = st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.text(), st.none()), max_size=5)


@given(rows)
def test_every_row_comes_back_whole_and_nothing_is_a_formula(
    given_rows: list[tuple[str, str, None]],
) -> None:
    text = document(["a", "b", "c"], given_rows)
    back = list(csv.reader(io.StringIO(text, newline="")))
    assert [len(row) for row in back] == [3] * (len(given_rows) + 1)
    for row, (one, two, _) in zip(back[1:], given_rows, strict=True):
        assert row[0] in (one, f"'{one}")
        assert row[1] in (two, f"'{two}")
        assert not row[0].startswith(("=", "+", "-", "@", "\t", "\r"))

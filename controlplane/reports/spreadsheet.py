"""Rows as CSV that a spreadsheet opens as what it is: text stays text, numbers stay numbers.

Invariant: the same rows give the same bytes; a text cell never begins with what a spreadsheet would
take for a formula; a number goes out in full, never rounded, never in exponents; unknown is empty.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

Cell = str | int | float | Decimal | None
# Some programs skip leading blanks and letters without width (a byte order mark), read full-width
# signs, or begin a cell at a tab or line break.
_FORMULA = re.compile(r"[\s\ufeff\u200b-\u200f\u202a-\u202e\u2060-\u2069]*[=+\-@＝＋－＠]|[\t\r\n]")


def cell(value: Cell) -> str:
    """One cell's text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if _FORMULA.match(value) else value
    return plain(value)


def plain(value: int | float | Decimal) -> str:
    """A number in full: ``0.0000425``, never ``4.25E-5`` or a tail of zeros."""
    exact = value if isinstance(value, Decimal) else Decimal(str(value))
    written = f"{exact:f}"
    if "." in written:
        written = written.rstrip("0").rstrip(".")
    return "0" if written == "-0" else written


def document(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """The file: RFC 4180, lines end in CR LF."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows([cell(value) for value in row] for row in rows)
    return file.getvalue()

"""Words of people: nothing in them is hidden, nothing turns what stands around it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.text import hidden_character, readable

TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("529s since 03:02", "529s since 03:02"),
        ("  blanks \n", "blanks"),
        ("two\r\nlines\rand\u2028three\x85four", "two\nlines\nand\nthree\nfour"),
        ("a\tb", "a b"),
        (f"a{TURNING}b", "ab"),
        ("red \x1b[31m\x07", "red [31m"),
        ("\u202egnihton", "gnihton"),
        ("\u200b\ufeff\u2060\u00ad", ""),
        ("\U000e0041\U000e0042smuggled", "smuggled"),
        # What people write: joiners of Persian and of emoji stay.
        ("می\u200cخواهم 👩\u200d🚒 £3", "می\u200cخواهم 👩\u200d🚒 £3"),
    ],
)
def test_free_text_keeps_what_can_be_read(text: str, reads: str) -> None:
    assert readable(text) == reads


@given(st.text())
def test_what_is_left_is_left_for_good_and_turns_nothing(text: str) -> None:
    once = readable(text)
    assert readable(once) == once
    assert not set(once) & set(TURNING)
    assert not [c for c in once if unicodedata.category(c) == "Cc" and c != "\n"]


@pytest.mark.parametrize(
    ("name", "char"),
    [
        ("gpt-4o", None),
        ("модель", None),
        ("gpt\u202e4o", "U+202E"),
        ("gpt\u200b4o", "U+200B"),
        ("gpt\n4o", "U+000A"),
        ("gpt\u20284o", "U+2028"),
    ],
)
def test_a_name_says_which_character_nobody_sees(name: str, char: str | None) -> None:
    assert hidden_character(name) == char

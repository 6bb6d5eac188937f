"""Figures, times and names read as the visual reference says."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard import present


@pytest.mark.parametrize(
    ("gbp", "words"),
    [
        (None, "–"),
        ("0", "0p"),
        ("0.000001", "<0.1p"),
        ("0.0005", "0.1p"),
        ("0.004", "0.4p"),
        ("0.048", "4.8p"),
        ("0.0996", "10p"),
        ("0.61", "61p"),
        ("0.994", "99p"),
        ("0.995", "£1.00"),
        ("1.719", "£1.72"),
        ("46.5", "£46.50"),
        ("12345.678", "£12,345.68"),
        ("-0.61", "-61p"),
    ],
)
def test_money(gbp: str | None, words: str) -> None:
    assert present.money(None if gbp is None else Decimal(gbp)) == words


@settings(deadline=None)
@given(st.decimals(min_value="0.000000000001", max_value="1000000", places=12))
def test_money_that_is_something_never_reads_as_nothing(gbp: Decimal) -> None:
    words = present.money(gbp)
    assert words not in ("0p", "0.0p", "£0.00")
    assert any(digit in words for digit in "123456789")


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(None, "–"), (0, "0%"), (0.0001, "<0.1%"), (0.022, "2.2%"), (0.0996, "10%"), (0.62, "62%")],
)
def test_failure_ratio(ratio: float | None, words: str) -> None:
    assert present.failure(ratio) == words


@pytest.mark.parametrize(("ratio", "words"), [(None, "–"), (0, "0"), (0.096, "9.6"), (0.1, "10.0")])
def test_retry_ratio_has_always_one_decimal(ratio: float | None, words: str) -> None:
    assert present.retry(ratio) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0.0 s"),
        (0.4, "0.4 s"),
        (38, "38 s"),
        (217, "3 min 37 s"),
        (19560, "5 h 26 min"),
        (183600, "2 d 3 h"),
    ],
)
def test_age(seconds: float, words: str) -> None:
    assert present.age(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1598.9, "26:38"), (59, "0:59"), (0.5, "now"), (-4, "now"), (7200, "2 h 0 min")],
)
def test_time_left(seconds: float, words: str) -> None:
    assert present.left(seconds) == words


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(15, "15 min"), (60, "1 h"), (90, "1 h 30 min"), (1440, "24 h"), (10080, "7 days")],
)
def test_chosen_lengths(minutes: int, words: str) -> None:
    assert present.lasting(minutes * 60) == words


def test_clock_names_another_day_in_the_persons_zone() -> None:
    london = ZoneInfo("Europe/London")
    now = datetime(2026, 7, 2, 23, 30, tzinfo=UTC)  # 00:30 on the 3rd in London
    assert present.clock(datetime(2026, 7, 2, 23, 5, 9, tzinfo=UTC), london, now) == "00:05:09"
    assert present.clock(datetime(2026, 7, 2, 22, 0, tzinfo=UTC), london, now) == "Thu 23:00:00"
    assert present.clock(datetime(2026, 6, 1, 9, 0, tzinfo=UTC), london, now) == "1 Jun 2026 10:00"


@settings(deadline=None)
@given(st.text(max_size=60), st.integers(min_value=5, max_value=40))
def test_a_cut_name_fits_and_keeps_its_end(name: str, width: int) -> None:
    short = present.cut(name, width)
    assert len(short) <= width
    if len(name) <= width:
        assert short == name
    else:
        head, tail = short.split("…", 1) if "…" not in name else ("", "")
        assert name.startswith(head)
        assert name.endswith(tail)


@pytest.mark.parametrize(
    ("match", "words"),
    [
        (("", "", ""), "every circuit"),
        (("openai", "", ""), "openai · any model"),
        (("openai", "gpt-4o", "eu"), "openai · gpt-4o · eu"),
        (("", "gpt-4o", "-"), "any provider · gpt-4o · no region"),
    ],
)
def test_match_in_words(match: tuple[str, str, str], words: str) -> None:
    assert present.match_words(*match) == words


@given(st.text(max_size=60))
def test_a_name_in_two_parts_is_whole_and_the_part_that_stays_is_short(name: str) -> None:
    head, tail = present.ended(name)
    assert head + tail == name
    assert len(tail) in (0, 8)
    assert len(head) >= len(tail) // 2


@pytest.mark.parametrize(
    ("width", "shown"), [(20, "it is slow"), (10, "it is slow"), (7, "it is…"), (3, "it…")]
)
def test_a_sentence_is_clipped_at_its_end(width: int, shown: str) -> None:
    assert present.clipped("it is slow", width) == shown


def test_an_amount_beyond_the_usual_context_is_shown_and_no_error() -> None:
    written = "£99,999,999,999,999,999,999,999,999.99"
    assert present.money(Decimal("99999999999999999999999999.99")) == written
    assert present.money(Decimal("-99999999999999999999999999.99")) == f"-{written}"

"""Reading a server's wait: the forms, their order; nothing makes it raise or go negative."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.hints import (
    LONGEST_S,
    Action,
    Hint,
    decide,
    parse_hint,
    remaining,
    sleep_s,
)

NOW = datetime(2023, 9, 29, 16, 26, 37, tzinfo=UTC)
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo"}


@pytest.mark.parametrize(
    ("headers", "body", "seconds", "source"),
    [
        ({"Retry-After": " 20 "}, None, 20, "retry-after"),
        ({"RETRY-AFTER": "0.25"}, None, 0.25, "retry-after"),
        ({"retry-after": "Friday, 29-Sep-23 16:26:57 GMT"}, None, 20, "retry-after"),
        ({"retry-after": "Fri Sep 29 16:26:57 2023"}, None, 20, "retry-after"),
        ({"retry-after": "Fri, 29 Sep 2023 18:26:57 +0200"}, None, 20, "retry-after"),
        ({"retry-after": "fri, 29 sep 2023 16:26:57 gmt"}, None, 20, "retry-after"),
        ({"retry-after": "2023-09-29T16:26:57Z"}, None, 20, "retry-after"),
        ({"retry-after": "1696004817"}, None, 20, "retry-after"),
        ({"retry-after": "20s"}, None, 20, "retry-after"),
        ({"retry-after": "5, 20"}, None, 20, "retry-after"),
        ({"retry-after": "Fri, 31 Feb 2023 16:26:57 GMT"}, None, None, None),
        ({"retry-after": "inf"}, None, None, None),
        ({"retry-after": "1e999"}, None, None, None),
        ({"retry-after": "soon"}, None, None, None),
        # a month is the longest that an allowance takes; more is not understood
        ({"retry-after": "2592000"}, None, 2592000, "retry-after"),
        ({"retry-after": "99999999"}, None, None, "retry-after"),
        ({"retry-after": "1e35"}, None, None, "retry-after"),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None, None, "retry-after"),
        ({"retry-after": "1e35", "x-ratelimit-reset": "7"}, None, 7, "x-ratelimit-reset"),
        ({"retry-after": "1696004817000"}, None, 20, "retry-after"),
        ({"retry-after-ms": "1e13"}, None, None, "retry-after-ms"),
        ({"x-ratelimit-reset": "1e30"}, None, None, None),
        ({"retry-after": "1_0"}, None, None, None),
        ({"retry-after-ms": "-1", "retry-after": "3"}, None, 3, "retry-after"),
        ({"retry-after-ms": "0", "retry-after": "3"}, None, 3, "retry-after"),
        ({"retry-after-ms": "0.5"}, None, 0.0005, "retry-after-ms"),
        ({"x-ratelimit-reset-tokens": "1m30s", "x-ratelimit-remaining-tokens": "0"}, None, 90,
         "x-ratelimit-reset-tokens"),
        ({"x-ratelimit-reset-tokens": "1m30s", "x-ratelimit-remaining-tokens": "7"}, None, None,
         None),
        ({"x-ratelimit-reset": "1696004857000", "x-ratelimit-remaining": "0"}, None, 60,
         "x-ratelimit-reset"),
        ({"ratelimit-reset": "12", "ratelimit-remaining": "0"}, None, 12, "ratelimit-reset"),
        ({"anthropic-ratelimit-tokens-reset": "2023-09-29T16:26:30Z",
          "anthropic-ratelimit-tokens-remaining": "0"}, None, 0,
          "anthropic-ratelimit-tokens-reset"),
        ({}, {"error": {"details": [RETRY_INFO | {"retryDelay": "30s"}]}}, 30, "body:RetryInfo"),
        ({}, [{"error": {"details": [RETRY_INFO | {"retryDelay": {"seconds": 1, "nanos": 5e8}}]}}],
         1.5, "body:RetryInfo"),
        ({}, {"error": {"details": [RETRY_INFO | {"retryDelay": "-3s"}]}}, None, None),
        ({"retry-after": "2"}, {"error": {"details": [RETRY_INFO | {"retryDelay": "30s"}]}}, 2,
         "retry-after"),
        ({}, {"error": {"message": "Please try again in 7m12.5s. Contact us."}}, 432.5,
         "body:message"),
        ({}, '{"error": {"message": "Please retry after 6 seconds."}}', 6, "body:message"),
        ({}, {"error": {"message": "Too many tokens, please wait."}}, None, None),
        ({}, {"retry_after": 60}, 60, "body:retry_after"),
        ({}, {"retry_after": math.nan}, None, None),
        ({}, {"retry_after": 10**5000}, None, None),
        ({}, {"error": {"metadata": {"headers": {"X-RateLimit-Remaining": "0",
          "X-RateLimit-Reset": "1696004857000"}}}}, 60, "x-ratelimit-reset"),
    ],
)  # fmt: skip
def test_it_finds_the_most_precise_usable_wait(
    headers: dict[str, str], body: Any, seconds: float | None, source: str | None
) -> None:
    hint = parse_hint(headers, body, now=NOW, status=429)
    assert hint.source == source
    assert hint.hint_s == (None if seconds is None else pytest.approx(seconds, abs=1e-6))


def test_it_measures_dates_by_the_servers_own_clock() -> None:
    headers = {
        "date": "Fri, 29 Sep 2023 16:20:00 GMT",
        "retry-after": "Fri, 29 Sep 2023 16:20:30 GMT",
    }
    assert parse_hint(headers, now=NOW, status=503).hint_s == 30


def test_it_ignores_reset_headers_of_answers_that_are_not_rate_limits() -> None:
    headers = {"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}
    assert parse_hint(headers, now=NOW, status=500) == Hint()


@pytest.mark.parametrize(
    ("hint", "action"),
    [
        (Hint(120, "retry-after"), Action.WAIT),
        (Hint(120.5, "retry-after"), Action.GIVE_UP),
        (Hint(0, "retry-after"), Action.BACKOFF),
        (Hint(None, None), Action.BACKOFF),
        (Hint(5, "retry-after", False), Action.NO_RETRY),
        (Hint(500, "retry-after", True), Action.GIVE_UP),
    ],
)
def test_it_decides_without_ever_shortening_a_wait(hint: Hint, action: Action) -> None:
    assert decide(hint, 120) is action


@pytest.mark.parametrize("text", ["-1", "many", "", "1e15"])
def test_it_takes_a_negative_or_unreadable_pushback_as_no_retry(text: str) -> None:
    hint = parse_hint({"grpc-retry-pushback-ms": text}, now=NOW, protocol="grpc")
    assert decide(hint, 120) is Action.NO_RETRY


def test_a_good_answer_never_rests_its_key_for_longer_than_a_month() -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "99999999"}
    pace = remaining(headers, now=NOW)
    assert pace is not None
    assert pace.rest_s == 0


def test_it_obeys_a_pushback_of_zero_at_once() -> None:
    hint = parse_hint({"grpc-retry-pushback-ms": "0"}, now=NOW, protocol="grpc")
    assert (hint.hint_s, decide(hint, 120)) == (0, Action.WAIT)


def test_it_paces_by_what_a_good_answer_says_is_left() -> None:
    pace = remaining(
        {
            "x-ratelimit-remaining-requests": "12",
            "x-ratelimit-reset-requests": "2m",
            "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-tokens": "7.66s",
        },
        now=NOW,
    )
    assert pace is not None
    assert {b.name: b.remaining for b in pace.buckets} == {"requests": 12, "tokens": 0}
    assert pace.rest_s == pytest.approx(7.66)
    assert remaining({"content-type": "text/plain"}, now=NOW) is None


HEADER_NAMES = st.sampled_from(
    (
        "retry-after",
        "retry-after-ms",
        "x-ratelimit-reset",
        "x-ratelimit-reset-tokens",
        "date",
        "anthropic-ratelimit-tokens-reset",
        "grpc-retry-pushback-ms",
        "x-should-retry",
        "ratelimit",
        "x-rate-limit-reset",
    )
)
TIMES = st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC))  # noqa: DTZ001
VALUES = st.one_of(
    st.text(max_size=40),
    st.floats().map(str),
    st.integers().map(str),
    TIMES.map(lambda t: t.strftime("%a, %d %b %Y %H:%M:%S GMT")),
    st.from_regex(r"[0-9]{1,6}(ms|s|m|h|d)([0-9]{1,4}s)?", fullmatch=True),
    st.from_regex(
        r"PT?[0-9]{1,9}[DHMS]|([0-9]{1,6}\.)?[0-9]{1,3}:[0-9]{2}:[0-9]{2}", fullmatch=True
    ),
    st.from_regex(r'"[a-z]{0,3}"(;[rt]=[0-9]{1,18}){1,3}', fullmatch=True),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "message",
                    "details",
                    "retryDelay",
                    "retry_after",
                    "headers",
                    "resets_at",
                    "retryAfterMs",
                    "estimated_time",
                    "quotaResetDelay",
                ]
            )
            | st.text(max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(HEADER_NAMES, VALUES), JSON | st.text(), TIMES, st.integers(100, 599))
def test_it_never_raises_and_never_waits_a_negative_time(
    headers: dict[str, str], body: Any, now: datetime, status: int
) -> None:
    hint = parse_hint(headers, body, now=now, status=status)
    assert hint.hint_s is None or 0 <= hint.hint_s <= LONGEST_S
    assert sleep_s(hint, 120, 1) >= (hint.hint_s or 0)
    pace = remaining(headers, now=now)
    assert pace is None or 0 <= pace.rest_s <= LONGEST_S


@given(st.integers(1, 10_000_000))
def test_it_reads_back_every_http_date(seconds: int) -> None:
    text = (NOW + timedelta(seconds=seconds)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    expected = seconds if seconds <= LONGEST_S else None
    assert parse_hint({"retry-after": text}, now=NOW).hint_s == expected

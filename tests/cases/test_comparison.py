"""The comparison must fail what is wrong: a runner that cannot fail proves nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from .comparison import compare


@pytest.mark.parametrize(
    ("expected", "result", "accept", "wrong"),
    [
        ({"a": 1.0}, {"a": 1.0009}, {}, []),
        ({"a": 1.0}, {"a": 1.002}, {}, ["a"]),
        ({"a": 1}, {"a": True}, {}, ["a"]),
        ({"a": None}, {}, {}, ["a"]),
        ({"a": None}, {"a": 0}, {}, ["a"]),
        ({"a": 1}, {"a": None}, {"a": [None]}, []),
        (
            {"after": [{"s": "x"}, {"s": "y"}]},
            {"after": [{"s": "x"}, {"s": "z"}]},
            {},
            ["after[1].s"],
        ),
        (
            {"after": [{"s": "x"}, {"s": "y"}]},
            {"after": [{"s": "x"}, {"s": "z"}]},
            {"after[1].s": ["z"]},
            [],
        ),
        ({"after": [1, 2]}, {"after": [1]}, {}, ["after"]),
        ({"cost": "0.10"}, {"cost": Decimal("0.1")}, {}, []),
        ({"cost": "0.10"}, {"cost": Decimal("0.1000001")}, {}, ["cost"]),
        ({"cost": "0.10"}, {"cost": None}, {}, ["cost"]),
        ({"status_any_of": [200, 202]}, {"status": 202}, {}, []),
        ({"status_any_of": [200, 202]}, {"status": 500}, {}, ["status_any_of"]),
        ({"status_not": [500]}, {"status": 500}, {}, ["status_not"]),
        ({"status_not": [500]}, {}, {}, ["status_not"]),
        ({"codes": [403, 4403]}, {"codes": 403}, {}, []),
        ({"codes": [403, 4403]}, {"codes": 101}, {}, ["codes"]),
        ({"within_s": 3}, {"within_s": 2.9}, {}, []),
        ({"within_s": 3}, {"within_s": 3.1}, {}, ["within_s"]),
        ({"peak_below": 5}, {"peak": 5}, {}, ["peak_below"]),
        ({"n_at_least": 5}, {"n": 5}, {}, []),
        ({"statuses": [200, [409, 412]]}, {"statuses": [200, 412]}, {}, []),
        ({"statuses": [200, [409, 412]]}, {"statuses": [200, 500]}, {}, ["statuses[1]"]),
        (
            {"must_not_start_with": ["="]},
            {"must_not_start_with": "=1+1"},
            {},
            ["must_not_start_with"],
        ),
        ({"shown": "marked stale or disconnected"}, {}, {}, []),
        ({"shown": "open"}, {}, {}, ["shown"]),
        ({"shown": "stale; colours fade after 10 s, as one reads it."}, {}, {}, []),
        ({"at": "2026-03-29T01:30:00+01:00"}, {}, {}, ["at"]),
        ({"cost": "<£0.01"}, {"cost": Decimal("0.001")}, {}, ["cost"]),
        ({"n_at_least": 5}, {"n": None}, {}, ["n_at_least"]),
    ],
)
def test_compare_finds_exactly_the_wrong_places(
    expected: dict[str, Any], result: dict[str, Any], accept: dict[str, Any], wrong: list[str]
) -> None:
    assert [d.path for d in compare(expected, result, accept)] == wrong

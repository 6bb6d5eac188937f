"""Compare a result with what a case expects.

Only the keys of ``expected`` are compared; a result may say more. Rules:

- numbers agree within 0.001 (or one part in 10^12); a bool is never a number;
- an expected text against a ``Decimal`` or ``Fraction`` result is compared as an exact number;
- ``accept`` maps a path (``scope``, ``after[5].state``) to further right values;
- ``x_any_of``, ``x_not``, ``x_below``, ``x_at_least`` and ``x_range`` are tests of the result ``x``
  (bare ``any_of`` and ``not`` of the result of that name); ``must_not_start_with`` lists prefixes;
- a list under a name with ``status`` or ``codes`` in it means any of, where the result is a single
  number; ``within_s`` is a bound;
- a sentence (three words or more) that the result has no key for is prose for the reader: it is
  reported and not compared.

Invariant: a key of ``expected`` that the result lacks is a difference, never a pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

TOLERANCE = 0.001
MISSING = "(the result has no such key)"
_WORD = re.compile(r"[A-Za-z]{2}")


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where the result is not what the case expects."""

    path: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected!r}, got {self.got!r}"

    def within(self, paths: frozenset[str]) -> bool:
        """True when this place, or one that holds it, is among ``paths``."""
        return any(self.path == p or self.path.startswith((f"{p}.", f"{p}[")) for p in paths)


def compare(
    expected: Mapping[str, Any], result: Mapping[str, Any], accept: Mapping[str, Sequence[Any]]
) -> list[Difference]:
    """Every difference between ``expected`` and ``result``, accepted values left out."""
    return list(_mapping("", expected, result, accept))


def _mapping(
    path: str, expected: Mapping[str, Any], result: Mapping[str, Any], accept: Mapping[str, Any]
) -> Iterator[Difference]:
    for key, want in expected.items():
        place = f"{path}.{key}" if path else key
        test, subject = _test_of(key)
        if test is not None:
            got = result.get(subject, result.get(key, MISSING))
            if got is MISSING or not _passes(test, got, want):
                yield Difference(place, want, got)
        elif key in result:
            yield from _value(place, want, result[key], accept)
        elif not is_sentence(want):
            yield Difference(place, want, MISSING)


def is_sentence(want: Any) -> bool:
    """True for a text of at least three words, among whatever else it holds."""
    return isinstance(want, str) and sum(bool(_WORD.search(w)) for w in want.split()) >= 3


def _value(path: str, want: Any, got: Any, accept: Mapping[str, Any]) -> Iterator[Difference]:
    found = list(_structure(path, want, got, accept))
    if found and any(not list(_structure(path, w, got, {})) for w in accept.get(path, ())):
        return
    yield from found


def _structure(path: str, want: Any, got: Any, accept: Mapping[str, Any]) -> Iterator[Difference]:
    if isinstance(want, dict) and isinstance(got, Mapping):
        yield from _mapping(path, want, got, accept)
    elif isinstance(want, list) and isinstance(got, list | tuple):
        if len(want) != len(got):
            yield Difference(path, want, got)
            return
        for index, (w, g) in enumerate(zip(want, got, strict=True)):
            yield from _value(f"{path}[{index}]", w, g, accept)
    elif not same(want, got) and not (
        ("status" in path or "codes" in path)
        and isinstance(want, list)
        and any(same(w, got) for w in want)
    ):
        yield Difference(path, want, got)


def same(want: Any, got: Any) -> bool:
    """True when two scalars agree by the rules above."""
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, str) and isinstance(got, Decimal | Fraction):
        return _exact(want) == Fraction(got)
    if isinstance(want, int | float) and isinstance(got, int | float | Decimal | Fraction):
        return math.isclose(want, float(got), rel_tol=1e-12, abs_tol=TOLERANCE)
    return bool(want == got)


def _exact(text: str) -> Fraction | None:
    """The number that a text writes; None when it writes none."""
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


def _any_of(got: Any, want: Any) -> bool:
    values = got if isinstance(got, list | tuple) else [got]
    return bool(values) and all(any(same(w, value) for w in want) for value in values)


def _none_of(got: Any, want: Any) -> bool:
    refused = want if isinstance(want, list) else [want]
    values = got if isinstance(got, list | tuple) else [got]
    return not any(same(w, value) for w in refused for value in values)


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "any_of": _any_of,
    "not": _none_of,
    "below": lambda got, want: got < want,
    "within_s": lambda got, want: got <= want,
    "at_least": lambda got, want: got >= want,
    "range": lambda got, want: got is not None and want[0] <= got <= want[1],
    "must_not_start_with": lambda got, want: not str(got).startswith(tuple(want)),
}


def _passes(test: Callable[[Any, Any], bool], got: Any, want: Any) -> bool:
    """What cannot be compared (None is below nothing) does not pass."""
    try:
        return test(got, want)
    except TypeError:
        return False


def _test_of(key: str) -> tuple[Callable[[Any, Any], bool] | None, str]:
    for name, test in _TESTS.items():
        if key == name:
            return test, key
        if key.endswith(f"_{name}"):
            return test, key.removesuffix(f"_{name}")
    return None, key


def contested_paths(case: Mapping[str, Any]) -> frozenset[str]:
    """The paths on which a case's sources disagree: reported, never failed."""
    return frozenset(case.get("contested") or ())

"""Find a time that no clock shows in a decoded message.

Invariant: every ``datetime`` that the message's type can hold is looked at, and nothing else is:
what to look at is worked out once from the type, because walking a whole report as plain objects
took longer than decoding it. A kind of container that is not walked here is an error at import.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from msgspec import Struct, inspect

Check: TypeAlias = Callable[[Any], str | None]
"""The path to the first time out of range, such as ``.circuits[0].since``; None without one."""

_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)


def times_of(message: type[Struct]) -> Check:
    """The check of a message's times: from 2000 to 2200."""
    return _check_of(inspect.type_info(message)) or _nothing


def _check_of(kind: inspect.Type) -> Check | None:
    if isinstance(kind, inspect.DateTimeType):
        return _time
    if isinstance(kind, inspect.UnionType):
        checks = [check for one in kind.types if (check := _check_of(one))]
        if len(checks) > 1:
            raise TypeError(f"two kinds of values with times in one place: {kind}")
        return _maybe(checks[0]) if checks else None
    if isinstance(kind, inspect.ListType):
        check = _check_of(kind.item_type)
        return _each(check) if check else None
    if isinstance(kind, inspect.StructType):
        fields = [(f.name, check) for f in kind.fields if (check := _check_of(f.type))]
        return _fields(fields) if fields else None
    if isinstance(kind, inspect.DictType) and not _check_of(kind.value_type):
        return None  # a key is text
    if isinstance(kind, inspect.CollectionType | inspect.DictType | inspect.TupleType):
        raise TypeError(f"times within it would not be looked at: {kind}")
    return None


def _nothing(_: Any) -> str | None:
    return None


def _time(value: datetime) -> str | None:
    return None if _EARLIEST <= value <= _LATEST else ""


def _maybe(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _each(check: Check) -> Check:
    def checked(values: list[Any]) -> str | None:
        for index, value in enumerate(values):
            if (path := check(value)) is not None:
                return f"[{index}]{path}"
        return None

    return checked


def _fields(fields: list[tuple[str, Check]]) -> Check:
    def checked(value: Struct) -> str | None:
        for name, check in fields:
            if (path := check(getattr(value, name))) is not None:
                return f".{name}{path}"
        return None

    return checked

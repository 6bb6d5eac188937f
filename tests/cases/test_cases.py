"""Every public case, one test each. The runner is in conftest.py, the comparison beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.long


def test_case(case: dict[str, Any], differences: Callable[[dict[str, Any]], list[str]]) -> None:
    found = differences(case)
    assert not found, "\n".join([f"{case['id']}: {case.get('description', '')}", *found])

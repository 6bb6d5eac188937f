"""Control-plane cases: each ``kind`` is answered by the part of the product that it is about.

Invariant: a kind without an entry in ``KINDS`` fails and says so; nothing is answered from the
case's own ``expected``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cases.adapters import (
    control_plane_browser,
    control_plane_ingest,
    control_plane_people,
    control_plane_reports,
)

# kind -> function of the case and pytest's request; grows with the parts that answer it.
KINDS: dict[str, Callable[[dict[str, Any], Any], dict[str, Any]]] = {
    **control_plane_browser.KINDS,
    **control_plane_ingest.KINDS,
    **control_plane_people.KINDS,
    **control_plane_reports.KINDS,
}


def run(case: dict[str, Any], request: Any) -> dict[str, Any]:
    """Results for one case. Raises ``LookupError`` for a kind that nothing answers yet."""
    answer = KINDS.get(case["kind"])
    if answer is None:
        raise LookupError(f"no part answers cases of kind {case['kind']!r}: add it to KINDS")
    return answer(case, request)

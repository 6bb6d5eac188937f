"""Python's garbage collector in a web process: what was loaded is left alone, the rest seldom.

Telemetry is read into many objects that live for one commit and hold no cycles; with the usual
limit (700 new objects) the collector walked them again and again, which was measured at a seventh
of the ingest path's processor time. Cycles are still collected, in larger portions.
"""

from __future__ import annotations

import gc

# New containers until the young are looked at; the other two as Python has them.
_YOUNG = 20_000


def settle() -> None:
    """Call once, when everything is imported and before the first request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])

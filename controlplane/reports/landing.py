"""Where breakers come to rest when an override ends: said before anybody ends it.

Invariant: only what instances in contact have reported under this very override is counted; of the
others nothing is promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from controlplane.domain.overrides import OverrideMode
from controlplane.domain.sync import SILENT_RED
from controlplane.models import CircuitState, Override


def read(row: Override, now: datetime) -> Mapping[str, int]:
    """The number of breakers by the state that they go to.

    ForceOpen lands in HalfOpen, one probe first; a mode that lets calls through lands where the
    automatic breaker, which kept counting, stands.
    """
    held = CircuitState.objects.filter(
        override_uid=str(row.uid),
        instance__replaced_at=None,
        instance__goodbye_at=None,
        instance__last_seen_at__gte=now - SILENT_RED,
    )
    if row.mode == OverrideMode.FORCE_OPEN:
        number = held.count()
        return {"HalfOpen": number} if number else {}
    return Counter(would_be or "Closed" for would_be in held.values_list("would_be", flat=True))

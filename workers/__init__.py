"""Background work: ``python -m celery -A workers worker`` and ``… beat``.

Invariant: importing this package does nothing; asking it for ``app`` sets Django up.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """``app`` on demand, which is how Celery finds it."""
    if name == "app":
        from workers.application import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

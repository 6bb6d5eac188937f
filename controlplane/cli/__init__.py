"""``switchgear``: the control plane from a terminal, with kubectl's grammar.

Invariant: a client of the HTTP API and nothing else: it loads neither Django nor the models, so it
starts quickly and runs on a laptop that has only this package and msgspec.
"""

from controlplane.cli.program import main

__all__ = ["main"]

"""The contract between a gateway and the control plane, imported by both sides.

Invariant: within ``v1`` a release only adds optional fields. ``docs/wire.md`` is the same in words.
"""

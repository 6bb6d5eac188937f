"""Fixtures of the end-to-end tests."""

from tests.controlplane.conftest import hot_pool

__all__ = ["hot_pool"]

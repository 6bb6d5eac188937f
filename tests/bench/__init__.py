"""Benchmarks. Each module here that has a ``measure`` function is one, named like the module."""

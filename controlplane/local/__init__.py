"""Everything on one machine: what `make up` and the test session start.

Invariant: standard library only, so that these modules work before anything else does.
The parts run as child processes; no module here imports Django or another part's code.
"""

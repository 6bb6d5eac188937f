"""A 40-minute brownout in virtual time through the real domain code (docs/brownout.md).

``model`` holds every number, ``policies`` what is compared, ``provider`` one simulated call,
``replay`` the run, ``tally`` what is counted, ``calibration`` how the free numbers were found.
"""

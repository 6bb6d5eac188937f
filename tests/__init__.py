"""The tests: one folder for each part, real parts throughout."""

"""Pure rules of Switchgear: standard library only; time is an argument, nothing here does I/O."""

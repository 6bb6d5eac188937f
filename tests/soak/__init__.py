"""``make soak``: load from many instances while everything is killed; then books are compared."""

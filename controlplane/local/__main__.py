"""`python -m controlplane.local` is `make up`, in an environment that is already installed."""

import sys

from .up import main

if __name__ == "__main__":
    sys.exit(main())

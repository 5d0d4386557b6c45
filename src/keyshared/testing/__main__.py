"""``python -m keyshared.testing``: see `keyshared.testing.terminal`."""

import sys

from keyshared.testing.terminal import main

if __name__ == "__main__":
    sys.exit(main())

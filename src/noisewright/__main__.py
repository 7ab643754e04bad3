"""``python -m noisewright``."""

from __future__ import annotations

import sys

from noisewright.cli import main

if __name__ == "__main__":
    sys.exit(main())

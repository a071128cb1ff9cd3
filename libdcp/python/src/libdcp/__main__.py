"""``python -m libdcp``."""

import sys

from ._programs import script

sys.exit(script())

"""``python -m libdcp``."""

import sys

from ._programs import main

sys.exit(main(sys.argv[1:]))

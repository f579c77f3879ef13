"""What every tier shares."""

from __future__ import annotations

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

# At the end: the installed packages are tested, and only `lab`, which is never installed, comes from the checkout.
sys.path.append(str(CHECKOUT))

"""Where tests find the checkout and its data."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DATA = CHECKOUT / "tests" / "data"
MODELS = CHECKOUT / "examples" / "models"
SUMMARIES = DATA / "summaries"

"""The load with no fault at all: what the others are compared with."""

from __future__ import annotations

import pytest
from faults.trial import Trials, nothing

pytestmark = pytest.mark.cluster


def test_nothing_happens(trials: Trials) -> None:
    trials.check("none", nothing)

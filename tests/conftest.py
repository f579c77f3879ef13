"""What every tier shares."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
from golden_texts import Golden
from hypothesis import settings

CHECKOUT = Path(__file__).resolve().parent.parent

# At the end: the installed packages are tested, and only `lab`, which is never installed, comes from the checkout.
sys.path.append(str(CHECKOUT))


# How fast an example is depends on what else the machine does; limits of time have tests of their own.
settings.register_profile("rad", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)  # for `make unit`; all else takes 100
settings.load_profile("rad")


def pytest_collection_finish() -> None:
    """Keep what the collected tests hold out of every later search for garbage."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--overwrite", action="store_true", help="write the golden texts again (tests/golden/)")


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> Golden:
    """Compares a text with its file under tests/golden/."""
    return Golden(CHECKOUT / "tests" / "golden", overwrite=pytestconfig.getoption("--overwrite"))

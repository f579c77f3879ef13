"""The profiles of the example summaries, field by field: a changed field changes what jobs book."""

from __future__ import annotations

import pytest
from golden_texts import Golden
from paths import MODELS

from gpumemnet.profile.build import profile_summary
from gpumemnet.training import TrainingSetup

GOOD = sorted(path for path in MODELS.glob("*.txt") if path.name != "broken.txt")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_profile_of_an_example(path: object, golden: Golden) -> None:
    found = profile_summary(str(path), TrainingSetup(batch_size=64, seq_len=128))
    rows = [f"{name} = {value}" for name, value in found._asdict().items()]
    golden(f"profiles/{path.stem}.txt", "\n".join(rows))  # type: ignore[attr-defined]

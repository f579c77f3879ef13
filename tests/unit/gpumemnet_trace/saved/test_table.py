"""The text that stands in for a trace that failed: a table of the model's calls."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from gpumemnet.profile.build import profile_with_warnings  # noqa: E402
from gpumemnet.tracing.saved import make, table  # noqa: E402
from gpumemnet.tracing.trace.inputs import InputSpec  # noqa: E402
from gpumemnet.training import TrainingSetup  # noqa: E402


class Language(nn.Module):
    """A model whose last layer has the weights of its first."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.body = nn.Embedding(5000, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, 5000, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.body(self.words(tokens)))  # type: ignore[no-any-return]


def test_tied_weights_count_once() -> None:
    model = Language()
    tokens = InputSpec(name=None, shape=(8, 16), dtype="int64")
    text = table.of_model(make.unfilled_copy(model), [tokens])
    profile, warnings = profile_with_warnings(f"{text}\n", TrainingSetup())
    assert profile.parameters == sum(each.numel() for each in model.parameters())
    assert not [line for line in warnings if "parameters" in line]

"""Attention in texts is known by its class, by its widths, or as what users write out below a depth limit."""

from __future__ import annotations

import pytest

from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.profile.record import ModelProfile
from gpumemnet.training import TrainingSetup


def profile(text: str) -> ModelProfile:
    return profile_with_warnings(text, TrainingSetup(batch_size=8, stated=frozenset({"batch_size"})))[0]


def table(*rows: str, total: int) -> str:
    """Return torchinfo's table of these rows: tree, shape, parameters."""
    head = f"{'=' * 90}\nLayer (type:depth-idx)                   Output Shape              Param #\n{'=' * 90}\n"
    return head + "\n".join(rows) + f"\n{'=' * 90}\nTotal params: {total:,}\nTrainable params: {total:,}\n"


@pytest.mark.parametrize("cls", ["Attention", "MSA", "Mixer"])
def test_attention_is_known_by_its_name_or_by_its_widths(cls: str) -> None:
    text = table(
        "Small                                    [8, 99, 128]              --",
        f"├─{cls}: 1-1                        [8, 99, 128]              --",
        "│    └─Linear: 2-1                       [8, 99, 384]              49,536",
        "│    └─Linear: 2-2                       [8, 99, 128]              16,512",
        total=66_048,
    )
    assert profile(text).saved_attention_bytes > 0


def test_hidden_attention_that_users_write_out_keeps_its_scores() -> None:
    def scores(cls: str) -> int:
        text = table(
            "Small                                    [8, 512, 128]             --",
            "├─Dropout: 1-1                           [8, 512, 128]             --",
            f"├─{cls}: 1-2                    [8, 512, 128]             66,048",
            total=66_048,
        )
        return profile(text).score_bytes

    assert scores("MultiHeadAttention") == 8 * 2 * 512 * 512 * 4
    assert scores("FusedAttention") == 0

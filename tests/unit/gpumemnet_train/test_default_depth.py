"""A text of all levels that is cut reads as the one that torchinfo prints with a depth limit."""

from __future__ import annotations

import re

import pytest
from paths import MODELS, SUMMARIES

from gpumemnet.learning.train.default_depth import cut
from gpumemnet.profile.build import profile_summary
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.training import TrainingSetup


def test_a_resnet_cut_at_the_default_depth_is_the_same_model() -> None:
    text = (MODELS / "resnet50_torchinfo.txt").read_text()
    less = cut(text, depth=2)
    assert less is not None and len(less) < len(text)
    setup = TrainingSetup(batch_size=32)
    whole, hides = profile_summary(text, setup), profile_summary(less, setup)
    assert hides.hidden_bytes > 0 == whole.hidden_bytes
    assert hides.output_sum_bytes == whole.output_sum_bytes
    assert hides.saved_norm_bytes == whole.saved_norm_bytes
    assert hides.reserved_bytes == pytest.approx(whole.reserved_bytes, rel=0.04)


def test_a_text_that_is_cut_reads_as_the_one_that_was_printed_so() -> None:
    deep, shallow = ((SUMMARIES / f"residual{which}.torchinfo.txt").read_text() for which in ("", "_depth2"))
    less = cut(deep, depth=2)
    assert less is not None

    def rows(text: str) -> list[tuple[str, int | None, object]]:
        found = parse_text(text, path="x").layers
        return [(re.sub(r"\s", "", layer.name), layer.params, layer.output_shapes) for layer in found]

    assert rows(less) == rows(shallow)
    assert cut(shallow, depth=2) is None


TABLE = """\
Layer (type:depth-idx)          Output Shape     Param #
Net                             [2, 10]          --
├─Block: 1-1                    [2, 10]          --
│    └─Linear: 2-1              [2, 10]          (110)
│    └─Linear: 2-2              [2, 10]          {second}
├─Linear: 1-2                   [2, 10]          110
Total params: 330"""


@pytest.mark.parametrize(("second", "both"), [("(1,110)", "(1,220)"), ("1,110", "1,220"), ("--", "(110)")])
def test_what_is_cut_off_counts_where_it_was(second: str, both: str) -> None:
    less = cut(TABLE.format(second=second), depth=1)
    assert less is not None
    assert [line.split()[-1] for line in less.split("\n")[2:4]] == [both, "110"]
    assert "2-1" not in less


def test_shared_layers_are_not_cut_off() -> None:
    assert cut(TABLE.format(second="(recursive)"), depth=1) is None

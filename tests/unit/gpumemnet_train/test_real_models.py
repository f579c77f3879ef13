"""The texts of the thesis' real models: what is odd about them, in a made-up small one."""

from __future__ import annotations

from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.training import TrainingSetup

WRAPPED = """\
DataParallel(
  (module): GPT2LMHeadModel(
    (transformer): GPT2Model(
      (wte): Embedding(1000, 64), 64,000 params
      (h): ModuleList(
        (0): GPT2Block(
          (ln_1): LayerNorm((64,), eps=1e-05, elementwise_affine=True), 128 params
          (attn): GPT2SdpaAttention(
            (c_attn): Conv1D(), 12,480 params
            (c_proj): Conv1D(), 4,160 params
          ), 16,640 params
          (mlp): GPT2MLP(
            (c_fc): Conv1D(), 16,640 params
            (c_proj): Conv1D(), 16,448 params
          ), 33,088 params
        ), 49,856 params
      ), 49,856 params
    ), 113,856 params
  ), 113,856 params
), 113,856 params
=====
Total params: 455,424
Trainable params: 455,424
"""


def test_totals_that_a_wrapper_multiplied_are_not_believed() -> None:
    profile, _ = profile_with_warnings(WRAPPED, TrainingSetup(batch_size=2, seq_len=32))
    assert profile.parameters == 113_856


def test_a_projection_without_sizes_gets_them_from_its_count() -> None:
    one, _ = profile_with_warnings(WRAPPED, TrainingSetup(batch_size=2, seq_len=32))
    four, _ = profile_with_warnings(WRAPPED, TrainingSetup(batch_size=8, seq_len=32))
    assert one.saved_linear_bytes >= 2 * 32 * (64 + 64 + 64 + 256) * 4
    assert 3.5 < four.saved_bytes / one.saved_bytes < 4.5

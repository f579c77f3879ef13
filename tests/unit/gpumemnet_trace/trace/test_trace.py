from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gpumemnet.tracing.trace import memory_of  # noqa: E402
from gpumemnet.tracing.trace.cuda import older  # noqa: E402
from gpumemnet.tracing.trace.inputs import parse_inputs  # noqa: E402
from gpumemnet.tracing.trace.recording import recorder  # noqa: E402
from gpumemnet.tracing.trace.session import Trace, record  # noqa: E402
from gpumemnet.tracing.trace.target import Target  # noqa: E402
from gpumemnet.training import TrainingSetup  # noqa: E402


def traced(make: Callable[[], Any], *inputs: str, **setup: Any) -> Trace:
    built = TrainingSetup(**setup)

    def target() -> Target:
        made = make()
        return made if isinstance(made, Target) else Target(model=made)

    return record(target, parse_inputs(inputs, built), built)


def sizes(trace: Trace, purpose: str) -> int:
    """Bytes ever allocated for a purpose and still live at the end."""
    live = {key: n for key, n in trace.events if n is not None}
    for key, n in trace.events:
        if n is None:
            live.pop(key, None)
    return sum(n for key, n in live.items() if n and trace.purpose_of[key] == purpose)


def allocations(trace: Trace, n_bytes: int) -> int:
    return sum(1 for _, n in trace.events if n == n_bytes)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 10))


PARAMETERS = 100 * 300 + 300 + 300 * 10 + 10


def test_what_is_left_after_training_is_parameters_gradients_and_states() -> None:
    trace = traced(perceptron, "64x100", optimizer="adam")
    assert trace.parameters == PARAMETERS
    assert sizes(trace, "parameters") == 4 * PARAMETERS
    assert sizes(trace, "gradients") == 4 * PARAMETERS
    assert sizes(trace, "optimizer") == 2 * 4 * PARAMETERS
    # Of what forward made, the script still has the inputs, the output and the loss.
    assert sizes(trace, "activations") == (64 * 100 + 64 * 10 + 1) * 4


@pytest.mark.parametrize(
    ("optimizer", "states"), [("sgd", 0), ("sgd-momentum", 1), ("rmsprop", 1), ("adamw", 2)]
)
def test_states_per_optimizer(optimizer: str, states: int) -> None:
    trace = traced(perceptron, "8x100", optimizer=optimizer)
    assert sizes(trace, "optimizer") == states * 4 * PARAMETERS


def test_adafactor_keeps_less_than_one_state() -> None:
    assert 0 < sizes(traced(perceptron, "8x100", optimizer="adafactor"), "optimizer") < 4 * PARAMETERS / 5


def test_foreach_makes_one_temporary_of_the_parameters_at_once() -> None:
    trace = traced(perceptron, "8x100", optimizer="adam")
    # Per step: gradient and the square root of the second moment; once: weight and two states.
    assert allocations(trace, 4 * 100 * 300) == 3 * 2 + 3


def test_bf16_halves_parameters_and_amp_casts_weights_for_each_step() -> None:
    half = traced(perceptron, "8x100", precision="bf16")
    assert sizes(half, "parameters") == 2 * PARAMETERS
    amp = traced(perceptron, "8x100", precision="amp")
    assert sizes(amp, "parameters") == 4 * PARAMETERS
    # Per step: the cast weight and its gradient in fp16.
    assert allocations(amp, 2 * 100 * 300) == 3 * 2


def test_a_cast_weight_used_twice_is_cast_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(128, 128, bias=False)

        def forward(self, x: Any) -> Any:
            return self.layer(self.layer(x)).sum()

    trace = traced(Twice, "7x128", precision="amp", optimizer="sgd")
    # Cast once per step, and two gradients that meet in a third tensor, as both are transposed views.
    assert allocations(trace, 2 * 128 * 128) == 3 * 4


def test_gradients_that_meet_are_added_in_place() -> None:
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(64, 64, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            return (y.sin() + y.cos()).sum()

    trace = traced(Fork, "100x64", optimizer="sgd")
    # Per step: y, sin, cos and their sum; in backward sin(y), cos(y), -sin, and the two products that meet.
    assert allocations(trace, 100 * 64 * 4) == 1 + 3 * 9


def test_the_gradients_of_a_tied_weight_meet_in_a_third_tensor() -> None:
    """A layer's part is a transposed view, into which autograd does not add: 148 MiB more for RoFormer's words."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(1000, 64)
            self.out = nn.Linear(64, 1000, bias=False)
            self.out.weight = self.words.weight

        def forward(self, x: Any) -> Any:
            return self.out(self.words(x)).sum()

    found = [n for n in first_backward(traced(Tied, "2x10:int64", optimizer="sgd")) if n == 1000 * 64 * 4]
    assert len(found) == 3


def test_a_matrix_product_keeps_a_workspace_in_each_thread() -> None:
    trace = traced(perceptron, "8x100")
    assert allocations(trace, 32 << 20) == 2


def test_fused_attention_never_makes_the_scores() -> None:
    class Attend(nn.Module):
        def __init__(self, fused: bool) -> None:
            super().__init__()
            self.fused, self.qkv = fused, nn.Linear(64, 192)

        def forward(self, x: Any) -> Any:
            q, k, v = (t.unflatten(-1, (2, 32)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            if self.fused:
                return F.scaled_dot_product_attention(q, k, v).sum()
            return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).sum()

    scores = 3 * 2 * 500 * 500
    for precision, width in (("fp32", 4), ("bf16", 2)):
        fused = traced(lambda: Attend(True), "3x500x64", precision=precision)
        plain = traced(lambda: Attend(False), "3x500x64", precision=precision)
        assert allocations(fused, scores * width) == 0
        assert allocations(plain, scores * width) >= 3 * 2


@pytest.mark.parametrize(("heads_last", "scores"), [(False, False), (True, True)])
def test_a_bias_with_the_heads_last_takes_the_plain_attention(heads_last: bool, scores: bool) -> None:
    """As T5's, which an H200 computes plainly: 300 to 490 MiB of scores were missing from its trace."""

    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            shape = (1, 128, 128, 4) if heads_last else (1, 4, 128, 128)
            self.bias = nn.Parameter(torch.zeros(shape))

        def forward(self, x: Any) -> Any:
            q, k, v = x.view(3, 2, 4, 128, 64).unbind(0)
            bias = self.bias.permute(0, 3, 1, 2) if heads_last else self.bias
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).sum()

    trace = traced(Biased, "3x2x4x128x64", optimizer="sgd")
    found = allocations(trace, 2 * 4 * 128 * 128 * 4)
    # Fused, only the gradient of the bias has this size; plainly, forward alone makes the scores, their sum with the
    # bias, the softmax and its masked form, in each of three steps.
    assert (found >= 3 * 4) == scores


def test_a_build_of_pytorch_with_cuda_is_not_queried_for_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login node has none: fake tensors that made a context, and Adam's look at graphs, ended every trace."""
    import torch._subclasses.fake_tensor as fake_tensor

    def ask(*_: Any) -> None:
        raise RuntimeError("Found no NVIDIA driver on your system")

    monkeypatch.setattr(fake_tensor, "init_gpu_context", ask)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", ask)
    assert traced(perceptron, "8x100").parameters == PARAMETERS


def test_dropout_keeps_a_mask_of_one_byte() -> None:
    trace = traced(lambda: nn.Sequential(nn.Linear(8, 1024), nn.Dropout(0.1), nn.Linear(1024, 2)), "48x8")
    assert allocations(trace, 48 * 1024) == 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 1024), nn.Linear(1024, 64)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(x)))


def first_backward(trace: Trace) -> list[int]:
    """The sizes that the first backward allocates, in order."""
    names = [name for _, name in trace.phase_starts]
    start = trace.phase_starts[names.index("backward")][0]
    end = trace.phase_starts[names.index("optimizer")][0]
    return [n for _, n in trace.events[start:end] if n is not None]


def test_dropout_makes_its_mask_first() -> None:
    trace = traced(lambda: nn.Sequential(nn.Linear(8, 1024), nn.Dropout(0.1), nn.Linear(1024, 2)), "48x8")
    made = [n for _, n in trace.events if n in (48 * 1024, 48 * 1024 * 4)]
    assert made[:3] == [48 * 1024 * 4, 48 * 1024, 48 * 1024 * 4]


@pytest.mark.parametrize(("precision", "order"), [("fp32", [0, 1]), ("bf16", [0, 1])])
def test_depthwise_kernels_make_the_gradient_of_the_weight_first(precision: str, order: list[int]) -> None:
    layers = (nn.Conv2d(3, 40, 1, bias=False), nn.Conv2d(40, 40, 3, padding=1, groups=40, bias=False))
    width = 4 if precision == "fp32" else 2
    sizes = [40 * 9 * width, 16 * 40 * 900 * width]
    trace = traced(lambda: nn.Sequential(*layers), "16x3x30x30", precision=precision, optimizer="sgd")
    found = [n for n in first_backward(trace) if n in sizes]
    # The gradient of the output, of the size of the input's, comes before.
    assert found[-2:] == [sizes[i] for i in order]


def test_part_of_a_tensor_is_copied_for_a_convolution() -> None:
    class Half(nn.Module):
        def __init__(self, whole: bool) -> None:
            super().__init__()
            self.whole, self.conv = whole, nn.Conv2d(8, 4, 1, bias=False)

        def forward(self, x: Any) -> Any:
            return self.conv(x if self.whole else x[:, :8]).sum()

    half = 2 * 8 * 50 * 50 * 4
    assert allocations(traced(lambda: Half(True), "2x8x50x50", optimizer="sgd"), half) == 1
    # The input has twice the channels; forward and the weight's gradient copy in each of three steps.
    assert allocations(traced(lambda: Half(False), "2x16x50x50", optimizer="sgd"), half) == 2 * 3


def test_the_gradient_of_a_softmax_borrows_a_product() -> None:
    class Soft(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 5000)

        def forward(self, x: Any) -> Any:
            return self.layer(x).softmax(-1).square().sum()

    found = [n for n in first_backward(traced(Soft, "3x8", optimizer="sgd")) if n == 3 * 5000 * 4]
    # Of the square: the product with 2 and with the gradient; of the softmax: its own and the product.
    plain = [n for n in first_backward(traced(perceptron, "3x100", optimizer="sgd")) if n == 3 * 5000 * 4]
    assert not plain and len(found) >= 3


def test_the_gradient_of_an_embedding_borrows_rows_for_many_indices() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(32128, 512)

        def forward(self, x: Any) -> Any:
            return self.table(x).sum()

    # Recorded on an H200: 8.80 MiB for 16 x 256 indices of this table.
    borrowed = (4096 // 10 + 1 + 4096) * 512 * 4
    assert allocations(traced(Words, "16x256:int64", optimizer="sgd"), borrowed) == 3
    assert allocations(traced(Words, "4x256:int64", optimizer="sgd"), (1024 // 10 + 1 + 1024) * 512 * 4) == 0


class Grouped(nn.Module):
    """Four heads of queries that share two of keys."""

    def __init__(self, grouped: bool) -> None:
        super().__init__()
        self.grouped, self.layer = grouped, nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        q = self.layer(x).view(2, 4, 300, 64)
        k = q[:, :2] if self.grouped else q[:, :1]
        return F.scaled_dot_product_attention(q, k, k, enable_gqa=self.grouped).sum()


@pytest.mark.parametrize(
    ("grouped", "precision", "plain"), [(True, "fp32", True), (True, "bf16", False), (False, "bf16", True)]
)
def test_heads_that_share_keys_are_fused_by_cudnn_and_flash_alone(
    grouped: bool, precision: str, plain: bool
) -> None:
    """Starcoder2 in fp32 and Falcon in bf16 took 960 and 490 MiB more than their traces on an H200."""
    trace = traced(lambda: Grouped(grouped), "2x4x300x64", precision=precision, optimizer="sgd")
    scores = 2 * 4 * 300 * 300 * 4  # in fp32, whatever the precision
    assert (allocations(trace, scores) > 0) == plain
    assert trace.uses_cudnn() != plain


def test_plain_attention_adds_its_mask_and_masks_rows_in_place() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64)
            self.register_buffer("mask", torch.zeros(300, 300, 4).permute(2, 0, 1))

        def forward(self, x: Any) -> Any:
            q, mask = self.layer(x), self.get_buffer("mask")
            return F.scaled_dot_product_attention(q, q, q, attn_mask=mask[None]).sum()

    trace = traced(Masked, "2x4x300x64", optimizer="sgd")
    names = [name for _, name in trace.phase_starts]
    start, end = (trace.phase_starts[names.index(name)][0] for name in ("forward", "backward"))
    scores = [n for _, n in trace.events[start:end] if n == 2 * 4 * 300 * 300 * 4]
    assert len(scores) == 2  # the product, to which the mask is added, and the softmax


def test_transformers_is_not_informed_of_fake_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes masks for tracing compilers that a plain run does without, and other attention takes over."""
    library: Any = types.ModuleType("transformers.utils.import_utils")
    library.is_fake_tensor = lambda tensor: True
    monkeypatch.setitem(sys.modules, library.__name__, library)
    answers: list[bool] = []

    class Queries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            answers.append(library.is_fake_tensor(x))
            return self.layer(x).sum()

    traced(Queries, "2x8")
    assert answers and not any(answers) and library.is_fake_tensor(None)


def test_checkpointing_recomputes_the_blocks() -> None:
    plain = traced(lambda: nn.Sequential(*(Block() for _ in range(6))), "512x64")
    saved = traced(lambda: nn.Sequential(*(Block() for _ in range(6))), "512x64", gradient_checkpointing=True)
    hidden = 512 * 1024 * 4
    # Live at once: two tensors per block against two in all.
    assert most_live(plain, hidden) >= 12
    assert most_live(saved, hidden) <= 4
    assert any("checkpointing was put around each of 6 blocks (Block)" in text for text in saved.warnings)


def most_live(trace: Trace, n_bytes: int) -> int:
    live: set[int] = set()
    most = 0
    for key, n in trace.events:
        if n is None:
            live.discard(key)
        elif n == n_bytes:
            live.add(key)
            most = max(most, len(live))
    return most


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_recurrent_layers_are_one_call_as_in_cudnn(kind: str, precision: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(nn, kind)(32, 64, num_layers=2, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0].float().pow(2).sum()

    trace = traced(Net, "16x400x32", precision=precision)
    assert len(trace.events) < 1000
    assert sizes(trace, "gradients") == 4 * trace.parameters


def test_weights_of_a_large_model_are_never_filled() -> None:
    # 40 GB of weights on a machine that may have less: the pages are never written.
    class Huge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(10_000, 10_000, bias=False) for _ in range(4))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x.sum()

    trace = traced(Huge, "2x10000", optimizer="sgd")
    assert sizes(trace, "parameters") == 4 * 4 * 10**8


def test_a_branch_on_a_value_is_warned_of() -> None:
    class Picks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            return y[y > 0].sum() if bool((y > 0).all()) else y.sum()

    trace = traced(Picks, "8x4")
    assert len(trace.warnings) == 2


def test_tied_weights_count_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(500, 32)
            self.head = nn.Linear(32, 500, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.embed(x))

    trace = traced(Tied, "4x16:int64")
    assert sizes(trace, "parameters") == sizes(trace, "gradients") == 4 * 500 * 32


@pytest.mark.parametrize(("precision", "kept"), [("fp32", 4), ("bf16", 2), ("amp", 2)])
def test_convolution_and_norm_keep_their_inputs(precision: str, kept: int) -> None:
    def net() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Flatten()
        )

    trace = traced(net, "4x3x32x32", precision=precision)
    image = 4 * 16 * 32 * 32 * kept
    # conv out, norm out (ReLU in place): both are kept for backward.
    assert most_live(trace, image) >= 2
    assert math.isclose(sizes(trace, "gradients"), trace.parameters * (2 if precision == "bf16" else 4))


class LayerDrop(nn.Module):
    """Skips its layer now and then, as BART's kin do, and takes probabilities in 32 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.rand([]) >= 0.1:
            x = self.layer(x)
        return F.log_softmax(x, dim=-1, dtype=torch.float32)


@pytest.mark.parametrize("precision", ["bf16", "amp"])
def test_no_layer_is_dropped_and_a_widening_softmax_runs(precision: str) -> None:
    trace = traced(LayerDrop, "64x256", precision=precision)
    assert all("branch" not in each for each in trace.warnings)
    weights = 256 * 256 * (2 if precision == "bf16" else 4)
    gradients = [n for key, n in trace.events if n == weights and trace.purpose_of.get(key) == "gradients"]
    assert gradients


def test_boxes_are_all_kept_where_overlaps_cannot_be_known() -> None:
    """torchvision's operator as its detectors call it; declared here, as the environment has no torchvision."""
    declared = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "nms"):
        declared.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, boxes: Any) -> Any:
            return self.layer(boxes[torch.ops.torchvision.nms(boxes, boxes[:, 0], 0.5)])

    trace = traced(Kept, "500x4", optimizer="sgd")
    assert "boxes that overlap were taken to be all kept" in trace.warnings
    assert allocations(trace, 8 * 500) >= 1  # which boxes


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_storage_whose_end_is_requested_ends_as_one_that_shows(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on PyTorch 2.1, whose weak references cannot be relied on."""
    reported = memory_of(traced(perceptron, "64x100", optimizer=optimizer))
    for module in (older, recorder):
        monkeypatch.setattr(module, "POLLED", True)
    assert memory_of(traced(perceptron, "64x100", optimizer=optimizer)) == reported


class Judged(nn.Module):
    """Looks at its input without gradients first, as a frozen encoder or an evaluation does."""

    def __init__(self, look: Callable[[], Any]) -> None:
        super().__init__()
        self.layer, self.encoder, self.look = nn.Linear(300, 300), nn.Conv1d(1, 8, 3), look

    def forward(self, x: Any) -> Any:
        with self.look():
            seen = self.encoder(x[:, None]).flatten(1)
            best = F.scaled_dot_product_attention(x[None], x[None], x[None])
            share = (seen > 0).sum(dtype=torch.float32) * (100.0 / len(x))
            assert share.item() == 0.0 and torch.where(seen > 0)[0].shape == (seen.numel(),)
        return self.layer(x) + best[0]


def test_inference_mode_takes_what_no_grad_takes() -> None:
    """Its composite operators come in parts: nothing knew them, and a number read in it ended the trace."""
    plain = traced(lambda: Judged(torch.no_grad), "64x300")
    inference = traced(lambda: Judged(torch.inference_mode), "64x300")
    assert [n for _, n in plain.events] == [n for _, n in inference.events]

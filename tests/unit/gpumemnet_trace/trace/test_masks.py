"""A mask that was filled at so many places chooses no more; one that something else wrote to may choose everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from gpumemnet.tracing.trace.cuda.device import pretended_cuda  # noqa: E402
from gpumemnet.tracing.trace.recording.masks import at_most, positive_at_most  # noqa: E402
from gpumemnet.tracing.trace.recording.recorder import Recorder  # noqa: E402
from gpumemnet.tracing.trace.recording.workspace import Workspaces  # noqa: E402

ALL = 2000


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with pretended_cuda(), Recorder(Workspaces()) as recorder:
        yield recorder


def filled(n: int, dtype: torch.dtype = torch.bool) -> Tensor:
    mask = torch.zeros(ALL, dtype=dtype, device="cuda")
    mask[torch.arange(n, device="cuda")] = 1
    return mask


def chosen(mask: Tensor) -> int:
    return torch.where(mask)[0].shape[0]


def test_what_was_filled_is_chosen_in_each_way_to_choose(recorder: Recorder) -> None:
    mask, rows = filled(5), torch.empty(ALL, 4, device="cuda")
    assert chosen(mask) == 5
    assert rows[mask].shape == (5, 4)
    assert torch.masked_select(rows[:, 0], mask).shape == (5,)
    assert chosen(filled(128, torch.uint8) | filled(384, torch.uint8)) == 512
    assert chosen(torch.cat([filled(5), filled(7)])) == 12
    by_fill = torch.zeros(ALL, dtype=torch.uint8, device="cuda").index_fill_(
        0, torch.arange(9, device="cuda"), 1
    )
    assert chosen(by_fill) == 9  # what PyTorch 2.15 makes of `mask[index] = 1`
    by_column = torch.zeros(10, ALL // 10, dtype=torch.bool, device="cuda")
    assert chosen(by_column.index_fill_(1, torch.arange(3, device="cuda"), 1)) == 30
    assert not recorder.assumptions.sentences()


def test_of_numbers_no_more_are_above_zero_than_was_reported(recorder: Recorder) -> None:
    labels = torch.zeros(512, dtype=torch.int64, device="cuda")
    assert chosen(labels > 0) == 512
    positive_at_most(labels, 128)
    assert chosen(labels > 0) == chosen(labels > 3) == 128
    assert chosen(labels > -1) == chosen(labels < 1) == chosen(labels >= 0) == 512
    labels[torch.arange(3, device="cuda")] = 1
    assert chosen(labels > 0) == 512


def test_no_value_of_a_training_that_goes_well_is_nan_or_infinite(recorder: Recorder) -> None:
    loss, grad = torch.empty((), device="cuda"), torch.empty(3, 4, device="cuda")
    assert not torch.isnan(loss) and not loss.isinf() and torch.isfinite(loss).item()
    assert not torch.isnan(grad).any() and not grad.isinf().any().item() and torch.isfinite(grad).all()
    assert not (torch.isnan(grad) | torch.isinf(grad)).any().cpu()
    assert not (torch.isnan(grad) & (grad > 0)).any()
    assert not loss.ne(loss)
    assert not any(torch.isnan(each.detach()).any() for each in (loss, grad))
    before = recorder.assumptions.sentences()
    assert loss != grad[0, 0]  # of two tensors nothing is known
    assert recorder.assumptions.sentences() != before


def test_a_loss_has_neither_diverged_nor_come_to_its_end(recorder: Recorder) -> None:
    loss, many = torch.empty((), device="cuda"), torch.empty(3, device="cuda")
    assert not loss > 1e4 and not loss.detach() >= 100.0 and not loss < 1e-3 and not loss <= 0.1
    assert loss > 0 and loss > 1e-3 and loss < 1e4
    assert (many > 1e4).any()  # of many numbers nothing is known


def test_unique_values_are_at_most_all(recorder: Recorder) -> None:
    ids = torch.zeros(8, 64, dtype=torch.int64, device="cuda")
    assert torch.unique(ids).shape == (512,)
    values, places, counts = ids.unique(return_inverse=True, return_counts=True)
    assert (values.shape, places.shape, counts.shape) == ((512,), (8, 64), (512,))
    assert recorder.assumptions.sentences()


def whole(mask: Tensor) -> None:
    mask.fill_(True)


def rest(mask: Tensor) -> None:
    mask[100:] = True


def view(mask: Tensor) -> None:
    mask.view(10, -1)[1] = True


def other(mask: Tensor) -> None:
    mask |= torch.empty(ALL, device="cuda") > 0


def by_mask(mask: Tensor) -> None:
    mask[torch.empty(ALL, device="cuda") > 0] = True


@pytest.mark.parametrize("write", (whole, rest, view, other, by_mask))
def test_what_else_writes_to_it_may_choose_everything(
    recorder: Recorder, write: Callable[[Tensor], None]
) -> None:
    mask = filled(5)
    write(mask)
    assert chosen(mask) == ALL
    assert recorder.assumptions.sentences()


def test_of_values_nothing_is_known_and_inference_mode_changes_nothing(recorder: Recorder) -> None:
    assert chosen(torch.empty(ALL, device="cuda") > 0) == ALL
    assert chosen(~filled(5)) == ALL
    with torch.inference_mode():
        assert at_most(filled(5)) == 5


def test_what_is_chosen_of_real_tensors_is_computed() -> None:
    """A script's own data, and a model's own constants: with their values, whatever is pretended around them."""
    boxes, column = torch.arange(8.0).reshape(4, 2), torch.arange(4.0)
    kept = torch.tensor([False, True, False, True])
    with pretended_cuda(), Recorder(Workspaces()) as recorder:
        chosen = boxes[kept]
        places, values = kept.nonzero(), torch.masked_select(column, kept)
        on_gpu = torch.empty(4, 2, device="cuda")[kept]
    assert chosen.tolist() == [[2.0, 3.0], [6.0, 7.0]]
    assert places.tolist() == [[1], [3]] and values.tolist() == [1.0, 3.0]
    assert on_gpu.shape == (2, 2)
    assert not recorder.assumptions.sentences()

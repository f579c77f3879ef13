"""Packed sequences are traced as long as their padding, and said to be."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

from gpumemnet.tracing.trace.cuda.device import pretended_cuda  # noqa: E402
from gpumemnet.tracing.trace.cuda.packed import WARNING  # noqa: E402
from gpumemnet.tracing.trace.recording.recorder import Recorder  # noqa: E402
from gpumemnet.tracing.trace.recording.workspace import Workspaces  # noqa: E402

BATCH, STEPS, FEATURES, HIDDEN = 16, 50, 32, 64


def peak_bytes(layer: type[nn.Module], *, packed: bool, **how: Any) -> tuple[int, dict[str, None]]:
    """Return the most that a step on the pretended GPU holds at once, and what was assumed."""
    with pretended_cuda(), Recorder(Workspaces()) as recorder:
        with torch.device("cuda"):
            model = layer(FEATURES, HIDDEN, batch_first=True, **how)
        x = torch.randn(BATCH, STEPS, FEATURES, device="cuda", requires_grad=True)
        lengths = torch.randint(1, STEPS + 1, (BATCH,))
        given = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False) if packed else x
        out, _ = model(given)
        if packed:
            out, ends = pad_packed_sequence(out, batch_first=True)
            assert ends.shape == (BATCH,)
        assert out.shape == (BATCH, STEPS, HIDDEN * (2 if how.get("bidirectional") else 1))
        out.mean().backward()
        assert x.grad is not None and x.grad.shape == x.shape
    used, most, sizes = 0, 0, {}
    for key, n_bytes in recorder.events:
        used += sizes.pop(key) * -1 if n_bytes is None else n_bytes
        if n_bytes is not None:
            sizes[key] = n_bytes
        most = max(most, used)
    return most, recorder.assumptions.sentences()


@pytest.mark.parametrize(("layer", "how"), [(nn.LSTM, {"bidirectional": True}), (nn.GRU, {}), (nn.RNN, {})])
def test_a_packed_batch_takes_what_its_padding_would(layer: type[nn.Module], how: dict[str, Any]) -> None:
    packed, said = peak_bytes(layer, packed=True, **how)
    padded, silent = peak_bytes(layer, packed=False, **how)
    assert list(said) == [WARNING] and not silent
    assert padded <= packed < 1.25 * padded  # a copy behind each other, and one back

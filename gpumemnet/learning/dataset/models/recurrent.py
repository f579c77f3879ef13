"""Recurrent networks: plain RNN, LSTM and GRU over tokens or over series."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gpumemnet.learning.dataset.config import TensorSpec
from gpumemnet.learning.dataset.draw import Draw, Drawn
from gpumemnet.learning.dataset.models.layers import dropout

STYLES = ("rnn", "lstm", "gru")
LOSS = "cross_entropy"
CELL: dict[str, type[nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
GATES = {"rnn": 1, "lstm": 4, "gru": 3}


def draw(d: Draw, style: str) -> Drawn:
    """Draw width, layers, direction, vocabulary or series width, length and task; arguments as for `cnn.draw`."""
    seq = d.choice((16, 32, 64, 100, 128, 200, 256, 512, 1024))
    arch: dict[str, Any] = {
        "seq_len": seq,
        "vocab": d.log_integer(1000, 100000) if d.chance(0.7) else 0,
        "features": d.log_integer(4, 1024),
        "hidden": d.log_integer(32, 2048, 8),
        "layers": d.integer(1, 6),
        "bidirectional": d.chance(0.4),
        "dropout": d.choice((0.0, 0.1, 0.3, 0.5)),
        "classes": d.log_integer(2, 1000),
    }
    arch["task"] = "tokens" if arch["vocab"] and d.chance(0.5) else "classify"
    elements, width = saved_elements(style, arch), arch["hidden"] * (2 if arch["bidirectional"] else 1)
    params: float = (arch["vocab"] + arch["hidden"]) * arch["features"] + arch["layers"] * GATES[
        style
    ] * width * arch["hidden"] * 2
    params += width * arch["vocab"] if arch["task"] == "tokens" else 0
    return Drawn(arch=arch, elements_per_sample=elements, params=params, batch_range=(1, 4096), seq_len=seq)


def saved_elements(style: str, arch: dict[str, Any]) -> float:
    """Return the rough number of elements that one sample leaves for backward (cuDNN keeps gates and cells itself).

    Args:
        style: Style that was drawn.
        arch: Architecture that was drawn: numbers and words by name.
    """
    width = arch["hidden"] * (2 if arch["bidirectional"] else 1)
    per_token = arch["features"] + arch["layers"] * width * (GATES[style] + 3)
    per_token += 2 * arch["vocab"] if arch["task"] == "tokens" else 0
    return float(arch["seq_len"] * per_token)


class RecurrentNet(nn.Module):
    """Embedding (for tokens), recurrent layers and a linear head."""

    def __init__(self, style: str, arch: dict[str, Any]) -> None:
        super().__init__()
        self.task = arch["task"]
        self.embedding = nn.Embedding(arch["vocab"], arch["features"]) if arch["vocab"] else nn.Identity()
        self.rnn = CELL[style](
            arch["features"],
            arch["hidden"],
            arch["layers"],
            batch_first=True,
            dropout=arch["dropout"] if arch["layers"] > 1 else 0.0,
            bidirectional=arch["bidirectional"],
        )
        self.dropout = nn.Sequential(*dropout(arch["dropout"]))
        width = arch["hidden"] * (2 if arch["bidirectional"] else 1)
        self.head = nn.Linear(width, arch["vocab"] if self.task == "tokens" else arch["classes"])

    def forward(self, x: Tensor) -> Tensor:
        """Return scores for each token, or for the sequence from its last state."""
        y, _ = self.rnn(self.embedding(x))
        scores: Tensor = self.head(self.dropout(y if self.task == "tokens" else y[:, -1]))
        return scores


build = RecurrentNet


def inputs(arch: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes of the inputs."""
    if arch["vocab"]:
        return (TensorSpec(kind="int", shape=(arch["seq_len"],), high=arch["vocab"]),)
    return (TensorSpec(kind="float", shape=(arch["seq_len"], arch["features"])),)


def target(arch: dict[str, Any]) -> TensorSpec:
    """Return the shape of the target."""
    if arch["task"] == "tokens":
        return TensorSpec(kind="int", shape=(arch["seq_len"],), high=arch["vocab"])
    return TensorSpec(kind="int", shape=(), high=arch["classes"])

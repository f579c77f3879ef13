"""Recommenders: embedding tables and perceptrons, concatenated (wide and deep) or with dot products (DLRM-like)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.learning.dataset.config import TensorSpec
from gpumemnet.learning.dataset.draw import Draw, Drawn
from gpumemnet.learning.dataset.models.layers import activation

STYLES = ("concat", "dot")
LOSS = "bce"


def draw(d: Draw, style: str) -> Drawn:
    """Draw tables, embedding width and perceptrons; arguments as for `cnn.draw`."""
    tables = d.integer(2, 40)
    arch: dict[str, Any] = {
        "tables": tables,
        "rows": d.log_integer(1000, 4_000_000 // tables * 4),
        "dim": d.choice((8, 16, 32, 64, 128)),
        "dense": d.integer(4, 256),
        "bottom": [d.log_integer(32, 1024, 8) for _ in range(d.integer(1, 3))],
        "top": [d.log_integer(64, 4096, 8) for _ in range(d.integer(1, 4))],
        "activation": d.choice(("relu", "relu_inplace", "gelu")),
    }
    elements = tables * arch["dim"] * 3 + 2 * sum(arch["bottom"]) + 2 * sum(arch["top"])
    elements += 3 * tables * tables if style == "dot" else 0
    params = tables * arch["rows"] * arch["dim"]
    return Drawn(arch=arch, elements_per_sample=elements, params=params, batch_range=(32, 262144))


def _perceptron(width: int, sizes: list[int], act: str) -> nn.Sequential:
    """Return linear layers with activations."""
    layers: list[nn.Module] = []
    for out in sizes:
        layers += [nn.Linear(width, out), activation(act)]
        width = out
    return nn.Sequential(*layers)


class Recommender(nn.Module):
    """Dense features through a perceptron, categories through tables, both through a second perceptron."""

    def __init__(self, style: str, arch: dict[str, Any]) -> None:
        super().__init__()
        self.dot, dim, tables = style == "dot", arch["dim"], arch["tables"]
        self.embeddings = nn.ModuleList(nn.Embedding(arch["rows"], dim) for _ in range(tables))
        self.bottom = _perceptron(arch["dense"], [*arch["bottom"], dim], arch["activation"])
        width = dim + (tables + 1) * tables // 2 if self.dot else dim * (tables + 1)
        self.top = _perceptron(width, arch["top"], arch["activation"])
        self.head = nn.Linear(arch["top"][-1], 1)

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        """Return one score per sample.

        Args:
            dense: Numbers, (batch, features).
            categories: Indices into the tables, (batch, tables).
        """
        x = self.bottom(dense)
        features = [x, *(table(categories[:, i]) for i, table in enumerate(self.embeddings))]
        if self.dot:
            stacked = torch.stack(features, 1)
            products = stacked @ stacked.transpose(1, 2)
            row, column = torch.tril_indices(len(features), len(features), -1, device=x.device)
            joined = torch.cat([x, products[:, row, column]], 1)
        else:
            joined = torch.cat(features, 1)
        score: Tensor = self.head(self.top(joined)).squeeze(1)
        return score


build = Recommender


def inputs(arch: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the shapes of the inputs: dense features and one index per table."""
    return (
        TensorSpec(kind="float", shape=(arch["dense"],)),
        TensorSpec(kind="int", shape=(arch["tables"],), high=arch["rows"]),
    )


def target(arch: dict[str, Any]) -> TensorSpec:
    """Return the shape of the target."""
    return TensorSpec(kind="float", shape=())

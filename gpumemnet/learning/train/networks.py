"""The thesis' two classifiers in torch (section 5.4.4, Figure 5.7): an ensemble of MLPs, and a Transformer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpumemnet.learning.train.arrays import Floats

Ints = NDArray[np.int64]

DEPTHS = (*range(1, 8), *range(1, 7))
"""Hidden layers of the thirteen MLPs: "varying depths ranging from 1 to 7 and 1 to 6"."""
WIDEST, NARROWEST = 8, 4
"""Neurons of the first hidden layer; each later one has half as many, at least NARROWEST."""
ENCODERS = ((6, 3, 4), (4, 2, 4))
"""The Transformer's two members: (width, layers, feed-forward width), one head, no dropout."""
LEARNING_RATE = 1e-3
BATCH = 128


class MlpEnsemble(nn.Module):
    """Thirteen small MLPs; their logits are averaged."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(_mlp(features, classes, depth) for depth in DEPTHS)

    def forward(self, features: Tensor) -> Tensor:
        """Map (batch, features) to (batch, classes)."""
        return torch.stack([member(features) for member in self.members]).mean(0)


class TransformerClassifier(nn.Module):
    """Encoders over the series of layers, summed over it, and an MLP ensemble on top; two members averaged."""

    def __init__(self, columns: int, length: int, scalars: int, classes: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(
            nn.Sequential(
                nn.Linear(columns, width),
                nn.BatchNorm1d(length),
                nn.ReLU(),
                nn.Linear(width, width),
                nn.BatchNorm1d(length),
                nn.ReLU(),
            )
            for width, _, _ in ENCODERS
        )
        self.encoders = nn.ModuleList(
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(width, 1, inner, dropout=0.0, batch_first=True),
                layers,
                enable_nested_tensor=False,
            )
            for width, layers, inner in ENCODERS
        )
        self.heads = nn.ModuleList(MlpEnsemble(width + scalars, classes) for width, _, _ in ENCODERS)
        for index, (width, _, _) in enumerate(ENCODERS):
            self.register_buffer(f"positions_{index}", _positions(length, width))

    def forward(self, sequence: Tensor, scalars: Tensor) -> Tensor:
        """Map (batch, length, columns) and (batch, scalars) to (batch, classes).

        Args:
            sequence: (batch, length, columns).
            scalars: (batch, scalars).
        """
        logits = []
        members = zip(self.embeddings, self.encoders, self.heads, strict=True)
        for index, (embedding, encoder, head) in enumerate(members):
            encoded = encoder(embedding(sequence) + self.get_buffer(f"positions_{index}"))
            logits.append(head(torch.cat([encoded.sum(1), scalars], 1)))
        return torch.stack(logits).mean(0)


def _mlp(features: int, classes: int, depth: int) -> nn.Sequential:
    widths = [features, *(max(NARROWEST, WIDEST >> layer) for layer in range(depth))]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(widths[-1], classes))
    for layer in network:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return network


def _positions(length: int, width: int) -> Tensor:
    angle = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    return torch.stack([angle.sin(), angle.cos()], -1).reshape(length, width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Duration of training.

    Attributes:
        epochs: Maximum number of epochs.
        patience: Epochs without a better validation loss after which training stops.
        seed: Seed of initialization and batches.
    """

    epochs: int = 600
    patience: int = 30
    seed: int = 42


def fit(
    make: Callable[[], nn.Module],
    train: tuple[Floats, ...],
    labels: Ints,
    validation: tuple[Floats, ...],
    validation_labels: Ints,
    fitting: Fitting,
) -> nn.Module:
    """Train a classifier with Adam and cross-entropy; the weights of the best validation loss are kept.

    Args:
        make: Builds the network, after the seed is set.
        train: Its inputs, rows first.
        labels: Classes from 0.
        validation: Inputs for stopping the training.
        validation_labels: Their classes.
        fitting: Duration of training.

    Returns:
        The network, in evaluation mode.
    """
    torch.manual_seed(fitting.seed)
    network = make()
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    inputs, classes = [_tensor(part) for part in train], torch.as_tensor(labels)
    validation_inputs, validation_classes = (
        [_tensor(part) for part in validation],
        torch.as_tensor(validation_labels),
    )
    best, best_state, waited = math.inf, network.state_dict(), 0
    for _ in range(fitting.epochs):
        network.train()
        for rows in torch.tensor_split(torch.randperm(len(classes)), max(1, len(classes) // BATCH)):
            if len(rows) < 2:  # batch normalization needs two
                continue
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(*(part[rows] for part in inputs)), classes[rows])
            torch.autograd.backward(loss)
            optimizer.step()
        network.eval()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(network(*validation_inputs), validation_classes)
        if float(loss) < best:
            best, waited = float(loss), 0
            best_state = {name: value.clone() for name, value in network.state_dict().items()}
        else:
            waited += 1
            if waited >= fitting.patience:
                break
    network.load_state_dict(best_state)
    return network.eval()


def predict(network: nn.Module, *inputs: Floats) -> Ints:
    """Return the likeliest class of each row."""
    with torch.no_grad():
        logits: Tensor = network(*(_tensor(part) for part in inputs))
    return np.asarray(logits.argmax(1).numpy(), np.int64)


def _tensor(part: Floats) -> Tensor:
    return torch.as_tensor(np.asarray(part, np.float32))

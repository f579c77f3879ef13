"""Read GPUMemNet's measurements (their licence forbids shipping them: the user supplies the folder).

The columns that begin with "Avg" were measured while the network trained. They do not exist before a job runs, so they
are never read here.
"""

from __future__ import annotations

import ast
import csv
import re
from dataclasses import dataclass
from pathlib import Path

from gpumemnet.errors import GpuMemNetError

CNN_FILE = "gpumemnet_cnn_partial.csv"
MLP_FILE = "gpumemnet_mlp.csv"
REAL_FILE = "realworld18.csv"
ACTIVATIONS = (
    "ELU", "GELU", "Identity", "LeakyReLU", "Mish", "PReLU", "ReLU", "SELU", "SiLU", "Softplus", "Tanh",
)  # fmt: skip
KINDS = {
    "batch_normalization": "norm",
    "batchnorm2d": "norm",
    "conv2d": "conv",
    "adaptive_avg_pool2d": "pool",
}
_CELL_LIMIT = 1 << 24  # one cell lists all layers of a network
_CNN_NAME = re.compile(
    r"input_channels:(?P<channels>\d+)_num_classes:\d+_depth:\d+_arch:(?P<architecture>[a-z_]+?)_base_filters:\d+"
    r"_batch:(?P<batch>\d+)_input_size:(?P<size>\d+)_"
)
_MLP_NAME = re.compile(r"input:(?P<channels>\d+)_output:\d+_depth:\d+_arch:(?P<architecture>[a-z_]+?)_batch:")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLayer:
    """One row of a network: kind, output elements per sample, parameters."""

    kind: str
    activations: int
    params: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRun:
    """One measured training of GPUMemNet.

    Attributes:
        architecture: "pyramid", "residual", ...
        layers: In running order.
        activation: Name of the activation function.
        batch_size: Samples per step.
        channels: Input channels; for an MLP the input's width.
        image_size: Height and width of the input; 1 for an MLP.
        peak_mib: The label: highest memory.used in nvidia-smi.
        out_of_memory: True if it crashed; the label is then the value reached, not the need.
    """

    architecture: str
    layers: tuple[PeerLayer, ...]
    activation: str
    batch_size: int
    channels: int
    image_size: int
    peak_mib: float
    out_of_memory: bool

    @property
    def params(self) -> int:
        """Parameters of all layers."""
        return sum(layer.params for layer in self.layers)

    @property
    def activations(self) -> int:
        """Output elements of all layers for one sample."""
        return sum(layer.activations for layer in self.layers)

    def count(self, kind: str) -> int:
        """Return the number of layers of a kind."""
        return sum(layer.kind == kind for layer in self.layers)


def read_cnn(folder: Path) -> list[PeerRun]:
    """Read the CNN snapshot, without rows that have no network (they crashed before it was printed)."""
    return [run for row in _rows(folder / CNN_FILE) if (run := _run(row, _CNN_NAME, "conv2d")) is not None]


def read_mlp(folder: Path) -> list[PeerRun]:
    """Read the MLP set, in the file's order: the split by seed depends on it."""
    return [run for row in _rows(folder / MLP_FILE) if (run := _run(row, _MLP_NAME, "linear")) is not None]


def read_real(folder: Path) -> list[dict[str, str]]:
    """Read the thesis' eighteen unseen real models (Figures 5.11 to 5.13), as text."""
    return _rows(folder / REAL_FILE)


def _rows(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(_CELL_LIMIT)
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except OSError as exc:
        raise GpuMemNetError(
            f"{path}: {exc.strerror}; name the folder of the measurements with --data"
        ) from exc


def _run(row: dict[str, str], pattern: re.Pattern[str], needed: str) -> PeerRun | None:
    name = pattern.match(row["Filename"])
    layers = ast.literal_eval(row["Activations-Params"] or "[]")
    if name is None or not any(kind == needed for kind, _, _ in layers):
        return None
    return PeerRun(
        architecture=name["architecture"],
        layers=tuple(
            PeerLayer(kind=KINDS.get(kind, kind), activations=int(size), params=int(params))
            for kind, size, params in layers
        ),
        activation=row["Activation Function"],
        batch_size=int(row["Batch Size"]),
        channels=int(name["channels"]),
        image_size=int(name["size"]) if "size" in pattern.groupindex else 1,
        peak_mib=float(row["Max GPU Memory (MiB)"]),
        out_of_memory=row.get("Status") == "OOM_CRASH",
    )

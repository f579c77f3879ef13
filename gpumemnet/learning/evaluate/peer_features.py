"""Features of GPUMemNet's runs: those of the thesis, and those of the analytical model."""

from __future__ import annotations

import math

import numpy as np

from gpumemnet.learning.evaluate.gpu import GPU_BYTES
from gpumemnet.learning.evaluate.peer_data import ACTIVATIONS, PeerRun
from gpumemnet.learning.evaluate.peer_graph import Operation, graph
from gpumemnet.learning.evaluate.peer_step import SAMPLES_PER_EPOCH, StepPeaks, replay_steps
from gpumemnet.learning.evaluate.peer_workspaces import FLOAT_BYTES, HYPOTHESES
from gpumemnet.learning.train.arrays import Floats
from gpumemnet.units import MIB

ARCHITECTURES = ("bottleneck", "dense", "gradual", "hourglass", "pyramid", "residual", "uniform")
_LAYER_CODES = {"conv": (0, 1), "linear": (1, 1), "norm": (0, 0), "dropout": (0, 0)}
_OTHER_CODE = (1, 0)


def paper_features(runs: list[PeerRun]) -> Floats:
    """Build the scalar features of the thesis' estimators (section 5.4.4), also unscaled.

    Returns:
        One row per run: depth, activations, activations * batch, parameters, batch, convolutions, linear layers,
        normalizations, dropouts, and sine and cosine of the activation function's number.
    """
    rows = []
    for run in runs:
        angle = math.pi * ACTIVATIONS.index(run.activation) / len(ACTIVATIONS)
        counts = [run.count(kind) for kind in ("conv", "linear", "norm", "dropout")]
        rows.append(
            [
                max(counts[:2]),
                run.activations,
                run.activations * run.batch_size,
                run.params,
                run.batch_size,
                *counts,
                math.sin(angle),
                math.cos(angle),
            ]
        )
    return np.array(rows, float)


def paper_sequences(runs: list[PeerRun]) -> Floats:
    """Build the thesis' series of (layer type, activations, parameters), padded with zeros to the longest."""
    longest = max(len(run.layers) for run in runs)
    out = np.zeros((len(runs), longest, 4))
    for row, run in zip(out, runs, strict=True):
        for cell, layer in zip(row, run.layers, strict=False):
            cell[:] = (*_LAYER_CODES.get(layer.kind, _OTHER_CODE), layer.activations, layer.params)
    return out


def model_features(runs: list[PeerRun]) -> tuple[list[str], Floats]:
    """Build RAD's features: the replayed peaks under every hypothesis on cuDNN, and features to distinguish these.

    Returns:
        Names, and one row per run. "peak_mixed" is the analytical estimate that the learned part corrects.
    """
    rows = [_model_terms(run) for run in runs]
    return list(rows[0]), np.array([list(row.values()) for row in rows], float)


def _model_terms(run: PeerRun) -> dict[str, float]:
    nodes = graph(run)
    convolutional = bool(run.count("conv"))
    features: dict[str, float] = {}
    plain = replay_steps(nodes, run.batch_size, HYPOTHESES["none"])
    for name, workspace in HYPOTHESES.items():
        free = replay_steps(nodes, run.batch_size, workspace) if convolutional else plain
        features[f"peak_{name}"] = free.reserved_mib
        features[f"ratio_{name}"] = free.reserved_mib / plain.reserved_mib
        if name in ("copies", "winograd_weight", "mixed") and convolutional:
            features |= _on_gpu(name, run, nodes, free)
    largest = max(node.elements for node in nodes) * run.batch_size * FLOAT_BYTES / MIB
    params = run.params * FLOAT_BYTES / MIB
    features |= {
        "allocated": plain.allocated_mib,
        "largest": largest,
        "params": params,
        "activations": run.activations * run.batch_size * FLOAT_BYTES / MIB,
        "largest_share": largest / plain.reserved_mib,
        "params_share": params / plain.reserved_mib,
        "fragmentation": plain.reserved_mib / plain.allocated_mib,
        "batch_size": run.batch_size,
        "last_batch": SAMPLES_PER_EPOCH % run.batch_size,
        "image_size": run.image_size,
        "channels": run.channels,
        "norms": run.count("norm"),
        "dropouts": run.count("dropout"),
        "linears": run.count("linear"),
    }
    features |= {f"activation_{name}": float(run.activation == name) for name in ACTIVATIONS}
    if convolutional:
        features |= _conv_shapes(run, nodes)
    return features


def _on_gpu(name: str, run: PeerRun, nodes: list[Operation], free: StepPeaks) -> dict[str, float]:
    """Replay again with limited GPU memory, if the limit is near."""
    if free.reserved_mib * MIB > 0.9 * GPU_BYTES:
        free = replay_steps(nodes, run.batch_size, HYPOTHESES[name], gpu_bytes=GPU_BYTES)
    return {f"gpu_{name}": free.reserved_mib, f"full_{name}": free.full, f"retries_{name}": free.retries}


def _conv_shapes(run: PeerRun, nodes: list[Operation]) -> dict[str, float]:
    convs = [(node, nodes[node.inputs[0]]) for node in nodes if node.kind == "conv"]
    widest, source = max(convs, key=lambda pair: pair[0].elements + pair[1].elements)
    work = max(
        run.batch_size * conv.area * conv.kernel**2 * conv.channels * before.channels
        for conv, before in convs
    )
    return {
        "convs": len(convs),
        "work": work,
        "most_channels": max(conv.channels for conv, _ in convs),
        "widest_channels": widest.channels,
        "widest_source": source.channels,
        # Tensor-core kernels require multiples of 4 (TF32) or 8 channels.
        "widest_mod4": widest.channels % 4,
        "widest_mod8": widest.channels % 8,
        "first_channels": convs[0][0].channels,
        "first_mod4": convs[0][0].channels % 4,
        "first_mod8": convs[0][0].channels % 8,
    } | {f"is_{name}": float(run.architecture == name) for name in ARCHITECTURES}

"""GPUMemNet's data: reading, rebuilding the networks, replaying steps. The rows here are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from gpumemnet.errors import GpuMemNetError
from gpumemnet.learning.evaluate import peer_data, peer_features, peer_graph, peer_step
from gpumemnet.learning.evaluate.peer_data import PeerLayer, PeerRun
from gpumemnet.learning.evaluate.peer_workspaces import HYPOTHESES
from gpumemnet.units import MIB

NAME = (
    "input_channels:3_num_classes:10_depth:2_arch:{arch}_base_filters:8_batch:4_input_size:16_act:gelu_dropout:0.3"
    "_dropout:False_batchnorm:False.out"
)
COLUMNS = (
    "Filename,Depth,Activations-Params,Activation Function,Batch Size,Max GPU Memory (MiB),Avg SMACT,Status"
)
PLAIN = [
    ("conv2d", 2048, 224), ("GELU", 2048, 0), ("conv2d", 2048, 584), ("GELU", 2048, 0),
    ("adaptive_avg_pool2d", 8, 0), ("linear", 10, 90), ("softmax", 10, 0),
]  # fmt: skip


def write(folder: Path, rows: list[str]) -> None:
    (folder / peer_data.CNN_FILE).write_text("\n".join([COLUMNS, *rows]) + "\n")


def row(layers: list[tuple[str, int, int]], *, smact: str = "0.5", status: str = "SUCCESSFUL") -> str:
    return f'{NAME.format(arch="uniform")},2,"{layers}",GELU,4,1750,{smact},{status}'


def run(architecture: str, layers: list[tuple[str, int, int]], *, batch: int = 4) -> PeerRun:
    return PeerRun(
        architecture=architecture,
        layers=tuple(
            PeerLayer(kind=peer_data.KINDS.get(kind, kind), activations=size, params=params)
            for kind, size, params in layers
        ),
        activation="GELU",
        batch_size=batch,
        channels=3,
        image_size=16,
        peak_mib=1750.0,
        out_of_memory=False,
    )


def test_rows_without_a_network_are_left_out_and_crashes_are_marked(tmp_path: Path) -> None:
    write(tmp_path, [row(PLAIN), row([]), row(PLAIN, status="OOM_CRASH")])
    runs = peer_data.read_cnn(tmp_path)
    assert [each.out_of_memory for each in runs] == [False, True]
    assert runs[0].channels == 3
    assert runs[0].image_size == 16


def test_what_was_measured_during_training_changes_no_feature(tmp_path: Path) -> None:
    write(tmp_path, [row(PLAIN, smact="0.1")])
    first = peer_features.model_features(peer_data.read_cnn(tmp_path))
    write(tmp_path, [row(PLAIN, smact="0.9")])
    second = peer_features.model_features(peer_data.read_cnn(tmp_path))
    assert first[0] == second[0]
    assert (first[1] == second[1]).all()


def test_a_missing_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(GpuMemNetError, match="--data"):
        peer_data.read_mlp(tmp_path / "nowhere")


def test_shapes_follow_from_counts() -> None:
    nodes = peer_graph.graph(run("uniform", PLAIN))
    convs = [node for node in nodes if node.kind == "conv"]
    assert [(node.channels, node.area, node.kernel) for node in convs] == [(8, 256, 3), (8, 256, 3)]


def test_a_residual_block_adds_its_shortcut() -> None:
    block = [("conv2d", 2048, 32), *PLAIN]
    nodes = peer_graph.graph(run("residual", block))
    (add,) = [index for index, node in enumerate(nodes) if node.kind == "add"]
    assert {nodes[number].kind for number in nodes[add].inputs} == {"GELU", "conv"}


def test_a_dense_block_concatenates() -> None:
    block = []
    for index in range(4):
        block += [("conv2d", 32 * 256, 32 * (9 * (3 + 32 * index) + 1)), ("GELU", 32 * 256, 0)]
    nodes = peer_graph.graph(run("dense", [*block, *PLAIN[4:]]))
    widths = [node.channels for node in nodes if node.kind == "cat"]
    assert widths == [3, 35, 67, 99, 131]


def test_a_step_holds_weights_gradients_moments_and_one_temporary() -> None:
    wide = [
        ("linear", 4096, 4096 * 4097),
        ("GELU", 4096, 0),
        ("linear", 4096, 4096 * 4097),
        ("Softmax", 4096, 0),
    ]
    one = PeerRun(
        architecture="uniform",
        layers=tuple(PeerLayer(kind=kind, activations=size, params=params) for kind, size, params in wide),
        activation="GELU",
        batch_size=4,
        channels=4096,
        image_size=1,
        peak_mib=2000.0,
        out_of_memory=False,
    )
    peaks = peer_step.replay_steps(peer_graph.graph(one), 4, HYPOTHESES["none"])
    weights_mib = 2 * 4096 * 4097 * 4 / MIB
    assert 5 * weights_mib <= peaks.allocated_mib <= 5 * weights_mib + 16
    assert peaks.reserved_mib >= peaks.allocated_mib


@pytest.mark.parametrize("architecture", ["uniform", "residual"])
def test_scratch_raises_the_peak_and_a_full_gpu_is_said(architecture: str) -> None:
    nodes = peer_graph.graph(run(architecture, PLAIN, batch=4096))
    plain = peer_step.replay_steps(nodes, 4096, HYPOTHESES["none"])
    for workspace in (HYPOTHESES["copies"], HYPOTHESES["winograd"]):
        assert peer_step.replay_steps(nodes, 4096, workspace).reserved_mib > plain.reserved_mib
    tight = peer_step.replay_steps(nodes, 4096, HYPOTHESES["none"], gpu_bytes=100 * MIB)
    assert tight.full
    assert tight.reserved_mib <= 100

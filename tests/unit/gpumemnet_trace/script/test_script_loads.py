"""Files that a script reads: on the CPU they hold their values and take no GPU memory."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from traced import saved

torch = pytest.importorskip("torch")

WEIGHTS = """
    import sys, torch
    from pathlib import Path

    model = torch.nn.Linear(1024, 4096)
    file = Path("earlier.pt")
    state = LOAD
    model.load_state_dict(state)
    model.cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        sgd.zero_grad()
        model(torch.rand(4, 1024, device="cuda")).sum().backward()
        sgd.step()
"""
CPU = [
    "torch.load(file)",
    'torch.load(file, map_location="cpu")',
    'torch.load(file, torch.device("cpu"), weights_only=True)',
    "torch.load(file, map_location=lambda storage, location: storage)",
    'torch.load(file, map_location={"cuda:0": "cpu"})',
    'torch.load(file.open("rb"), mmap=False)',
]
GPU = [
    'torch.load(file, map_location="cuda")',
    "torch.load(file, map_location=lambda storage, location: storage.cuda(0))",
    'torch.load(file.open("rb"), map_location={"cpu": "cuda:0"})',
]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save(torch.nn.Linear(1024, 4096).state_dict(), tmp_path / "earlier.pt")
    return tmp_path


@pytest.mark.parametrize(("load", "gpu"), [(load, load in GPU) for load in CPU + GPU])
def test_weights_take_gpu_memory_only_where_they_are_loaded_to_it(
    weights: Path, load: str, gpu: bool
) -> None:
    _, found = saved(weights, WEIGHTS.replace("LOAD", load))
    (profile,) = found.profiles
    assert profile.parameter_bytes == (2 if gpu else 1) * 4 * profile.parameters


DATA = """
    import pickle, torch

    labels = torch.load("labels.pt")["labels"]
    with open("labels.pickle", "rb") as file:
        pickled = pickle.load(file)
    classes = int(labels.max()) + 1
    assert classes == 37 and torch.equal(labels, pickled) and not (labels.is_cuda or pickled.is_cuda)
    model = torch.nn.Linear(8, classes).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for label in torch.utils.data.DataLoader(labels, batch_size=16):
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.rand(16, 8).cuda()), label.cuda()).backward()
        sgd.step()
"""


def test_data_is_loaded_with_its_values(tmp_path: Path) -> None:
    labels = torch.arange(37).repeat(20)[: 16 * 40]
    torch.save({"labels": labels}, tmp_path / "labels.pt")
    (tmp_path / "labels.pickle").write_bytes(pickle.dumps(labels))
    _, found = saved(tmp_path, DATA)
    assert found.profiles[0].parameters == 9 * 37

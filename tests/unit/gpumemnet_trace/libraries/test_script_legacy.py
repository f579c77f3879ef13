"""Scripts in the words of earlier PyTorch releases: types of tensors, DataParallel, drawings of the model."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from traced import saved

pytest.importorskip("torch")

PENALTY = """
    import numpy as np, torch
    from torch import nn
    from torch.autograd import Variable, grad

    Float = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    assert isinstance(torch.zeros(2, device="cuda"), Float) and not isinstance(torch.zeros(2), Float)
    model = nn.DataParallel(nn.Sequential(nn.Linear(64, 1024), nn.Linear(1024, 64)), [0]).cuda()
    critic = nn.DataParallel(nn.Linear(64, 1)).cuda()
    adam = torch.optim.Adam(model.parameters())
    for _ in range(4):
        real = Variable(torch.rand(8, 64).type(Float))
        assert real.is_cuda and real.type() == "torch.cuda.FloatTensor" and real.get_device() == 0
        ones = Variable(Float(8, 1).fill_(1.0), requires_grad=False)
        noise = Float(np.random.normal(0, 1, (8, 64)))
        assert noise.dtype is torch.float32 and noise.shape == (8, 64) and noise.new(3, 4).is_cuda
        labels = torch.arange(8).type("torch.cuda.LongTensor")
        assert labels.is_cuda and labels.dtype is torch.int64 and torch.ones(2).type() == "torch.FloatTensor"
        assert critic(torch.rand(8, 64)).is_cuda  # inputs may be on the CPU
        fake = model(noise + real)
        between = Variable(fake.data, requires_grad=True)
        (slope,) = grad(critic(between), between, grad_outputs=ones, create_graph=True, retain_graph=True)
        adam.zero_grad()
        (critic(fake).mean() + ((slope.norm(2, dim=1) - 1) ** 2).mean()).backward()
        adam.step()
"""


def test_a_gradient_penalty_in_legacy_words_is_traced(tmp_path: Path) -> None:
    done, found = saved(tmp_path, PENALTY)
    assert found.profiles[0].parameters == 65 * 1024 + 1025 * 64
    assert json.loads(done.stdout)["warnings"] == []


DEFAULT = """
    import torch

    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    model = torch.nn.Linear(512, 512)
    adam = torch.optim.Adam(model.parameters())
    far = torch.Tensor([1e10])
    assert far.is_cuda and torch.Tensor(2, 3).is_cuda and torch.Tensor().is_cuda and not torch.FloatTensor(2).is_cuda
    for _ in range(4):
        adam.zero_grad()
        torch.cat([model(torch.rand(4, 512)), far.expand(4, 1)], -1).sum().backward()
        adam.step()
    torch.set_default_tensor_type("torch.FloatTensor")
    assert not torch.Tensor([1e10]).is_cuda
"""


def test_a_default_type_on_the_gpu_makes_tensors_there(tmp_path: Path) -> None:
    _, found = saved(tmp_path, DEFAULT)
    assert found.profiles[0].parameters == 513 * 512


CLIPPED = """
    import torch

    model = torch.nn.Linear(512, 512).cuda()
    adam = torch.optim.Adam(model.parameters())
    for _ in range(4):
        adam.zero_grad()
        model(torch.rand(4, 512, device="cuda")).sum().backward()
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).is_cuda
        adam.step()
"""


def test_gradients_are_clipped_on_the_gpu(tmp_path: Path) -> None:
    _, found = saved(tmp_path, CLIPPED)
    assert found.profiles[0].parameters == 513 * 512


DRAWN = """
    import sys, torch
    sys.path.insert(0, ".")
    from tensorboardX.writer import SummaryWriter

    class Model(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x.view(int(x.size(0)), -1))

    model = Model(64, 64).cuda()
    SummaryWriter().add_graph(model, torch.zeros(1, 8, 8, device="cuda"))
    torch.jit.trace(model, torch.zeros(1, 8, 8, device="cuda"))
    adam = torch.optim.Adam(model.parameters())
    for _ in range(4):
        model(torch.rand(4, 8, 8, device="cuda")).sum().backward()
        adam.step()
"""
WRITER = """
    class SummaryWriter:
        def add_graph(self, model, inputs):
            raise AssertionError("drawn")
"""


def test_a_drawing_of_the_model_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "tensorboardX").mkdir()
    (tmp_path / "tensorboardX" / "__init__.py").touch()
    (tmp_path / "tensorboardX" / "writer.py").write_text(textwrap.dedent(WRITER))
    _, found = saved(tmp_path, DRAWN)
    assert found.profiles[0].parameters == 65 * 64


QUERIES = """
    import torch

    with torch.device("cuda"):
        model = torch.nn.Linear(8, 8)
    there = [model.weight, torch.rand(4, 8, device="cuda"), model.weight.detach()]
    assert not any(tensor.is_meta for tensor in there), "a library would wait for it to be filled"
    scaled = [frequency / 8 for frequency in torch.rand(4, device="cuda")]
    assert torch.tensor(scaled, device=scaled[0].device).shape == torch.tensor([scaled, scaled])[0].shape
    assert torch.asarray(obj=scaled, device="cuda").is_cuda and torch.as_tensor(data=(1, 2)).tolist() == [1, 2]
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(there[1]).sum().backward()
        sgd.step()
"""


def test_what_is_on_the_gpu_is_not_on_meta(tmp_path: Path) -> None:
    _, found = saved(tmp_path, QUERIES)
    assert found.profiles[0].parameters == 72

"""What a script's model was called with: the batch that trains, not what a constructor finds sizes with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traced import estimated, saved

pytest.importorskip("torch")

from gpumemnet.script.live import AFTER_READING

TRIES = """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
            self.head = nn.LazyLinear(10) if LAZY else nn.Linear(self.features(torch.zeros(1, 3, 32, 32)).shape[1], 10)

        def forward(self, x):
            return self.head(self.features(x))

    helper, model = nn.Linear(4, 4).cuda(), Model()
    model(torch.zeros(3, 3, 32, 32))
    model = model.cuda()
    model(torch.zeros(2, 3, 32, 32, device="cuda"))  # as torchsummary does
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        helped = helper(torch.rand(7, 4, device="cuda")).mean()
        sgd.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.rand(16, 3, 32, 32).cuda()), torch.zeros(16).long().cuda())
        (loss + helper(torch.rand(5, 4, device="cuda")).mean() + helped).backward()
        sgd.step()
"""


@pytest.mark.parametrize("lazy", [False, True])
def test_the_batch_is_that_of_the_largest_models_last_call(tmp_path: Path, lazy: bool) -> None:
    _, found = saved(tmp_path, TRIES.replace("LAZY", str(lazy)))
    assert found.inputs == ("16x3x32x32:float32",)
    assert found.profiles[0].batch_size == 16


MASTER = """
    import torch

    model = torch.nn.Linear(512, 512).cuda().half()
    master = torch.nn.Parameter(torch.cat([p.detach().flatten() for p in model.parameters()]).float())
    adam = torch.optim.AdamW([master])
    for _ in range(4):
        model.zero_grad()
        model(torch.rand(4, 512, device="cuda").half()).sum().backward()
        master.grad = torch.cat([p.grad.flatten() for p in model.parameters()]).float()
        adam.step()
"""


def test_a_model_whose_copy_in_32_bits_is_trained_is_found(tmp_path: Path) -> None:
    _, found = saved(tmp_path, MASTER)
    (profile,) = found.profiles
    assert (found.model, profile.parameters, profile.precision) == ("Linear", 513 * 512, "bf16")


PERIODS = """
    import torch

    model = torch.nn.Linear(8, 8).cuda()
    adam = torch.optim.Adam(model.parameters())
    for _ in range(4):
        found = model(torch.rand(4, 8, device="cuda"))
        period = 8 // int(found.topk(2).indices.cpu().numpy()[0].max())
"""


def test_a_failure_after_values_were_read_says_what_they_are(tmp_path: Path) -> None:
    done = estimated(tmp_path, PERIODS)
    assert AFTER_READING in json.loads(done.stdout)["warnings"][0]


GONE = """
    import torch, weakref

    class Held:
        pass

    proxies = [weakref.proxy(Held()) for _ in range(3)]  # what is gone by now
    model = torch.nn.Linear(8, 8).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.rand(4, 8, device="cuda")).sum().backward()
        sgd.step()
"""


def test_what_is_gone_behind_a_weak_proxy_is_passed_over(tmp_path: Path) -> None:
    _, found = saved(tmp_path, GONE)
    assert found.model == "Linear"

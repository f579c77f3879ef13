"""Scripts with several optimizers, whose steps are not made in turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traced import saved

pytest.importorskip("torch")

BYTES = 4
ADAMS_STATES = 2
CRITIC = """
    import torch
    from torch import nn

    critic, generator = nn.Linear(64, 1).cuda(), nn.Sequential(nn.Linear(8, 4096), nn.Linear(4096, 64)).cuda()
    adams = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    for step in range(1000):
        noise = torch.randn(16, 8, device="cuda")
        one = STEP
        adams[one].zero_grad()
        (critic(generator(noise)).mean() * (-1) ** one).backward()
        adams[one].step()
"""
OF_BOTH = 64 + 1 + 8 * 4096 + 4096 + 4096 * 64 + 64


@pytest.mark.parametrize(
    ("one", "reported"),
    [("step % 2", False), ("int(step % 6 == 5)", False), ("0", True)],
    ids=["in turn", "five to one", "one never"],
)
def test_each_optimizer_is_waited_for(tmp_path: Path, one: str, reported: bool) -> None:
    done, found = saved(tmp_path, CRITIC.replace("STEP", one))
    (profile,) = found.profiles
    adams = profile.optimizer_bytes / (BYTES * ADAMS_STATES)
    assert adams == pytest.approx(64 + 1 if reported else OF_BOTH, rel=0.05, abs=512)
    warnings = json.loads(done.stdout)["warnings"]
    assert any("fewer than two steps" in each for each in warnings) == reported


ANEW = """
    import torch

    model = torch.nn.Linear(512, 512).cuda()
    for part in range(1000):
        adam = torch.optim.Adam(model.parameters())
        model(torch.rand(4, 512, device="cuda")).sum().backward()
        adam.step()
"""


def test_an_optimizer_that_is_made_again_for_each_part_of_the_data_is_one(tmp_path: Path) -> None:
    done, found = saved(tmp_path, ANEW)
    (profile,) = found.profiles
    assert profile.parameters == 513 * 512
    assert json.loads(done.stdout)["warnings"] == []


LATER = """
    import torch

    model, head = torch.nn.Linear(512, 512).cuda(), torch.nn.Linear(512, 512).cuda()
    adam, late = torch.optim.Adam(model.parameters()), None
    for step in range(1000):
        model(torch.rand(4, 512, device="cuda")).sum().backward()
        adam.step()
        late = late or torch.optim.Adam(OF.parameters())
"""


@pytest.mark.parametrize(("of", "reported"), [("head", True), ("model", False)])
def test_an_optimizer_that_is_made_after_the_first_step_and_makes_none_is_reported(
    tmp_path: Path, of: str, reported: bool
) -> None:
    done, found = saved(tmp_path, LATER.replace("OF", of))
    assert found.profiles[0].optimizer_bytes == pytest.approx(BYTES * ADAMS_STATES * 513 * 512, rel=0.01)
    assert any("fewer than two steps" in each for each in json.loads(done.stdout)["warnings"]) == reported


IN_BACKWARD = """
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(20))).cuda()
    own = {p: torch.optim.Adam([p]) for p in model.parameters()}

    def step(p):
        own[p].step()
        own[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(1000):
        model(torch.rand(4, 256, device="cuda")).sum().backward()
"""


def test_an_optimizer_for_each_weight_that_steps_within_backward_passes_is_waited_for(tmp_path: Path) -> None:
    done, found = saved(tmp_path, IN_BACKWARD)
    (profile,) = found.profiles
    weights = 20 * 257 * 256
    assert profile.optimizer_bytes == pytest.approx(BYTES * ADAMS_STATES * weights, rel=0.05)
    assert profile.gradient_bytes < BYTES * weights / 2, "each is gone after its step"
    assert json.loads(done.stdout)["warnings"] == []

"""Modules that the parent loads once for its forked children: imports only, never CUDA.

PyTorch cannot use CUDA in a child after a query by its parent, and some imports query it. So each step is tried in a
separate process first; a harmful step is skipped, which only costs time.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn

from gpumemnet.learning.dataset.generate import generate
from gpumemnet.learning.dataset.running.measure import make_optimizer
from gpumemnet.learning.dataset.running.need import estimate_need

Step = tuple[str, Callable[[], None]]
TRACED = 40
"""Enough configurations for every family, so that all late imports of PyTorch are done."""


def warm_up(heldout: bool) -> list[str]:
    """Run every harmless step in this process; return the names of skipped ones."""
    steps: list[Step] = [("compiler", _compiler), ("meta traces", _traces), ("optimizers", _optimizers)]
    if heldout:
        steps += [("torchvision", _torchvision), ("timm", _timm), ("transformers", _transformers)]
    left_out: list[str] = []
    for name, step in steps:
        if _harmless(step):
            step()
        else:
            left_out.append(name)
    return left_out


def _harmless(step: Callable[[], None]) -> bool:
    """Return whether children could still use CUDA after this step."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    code = 1
    try:
        step()
        if not torch.cuda.is_initialized():
            grandchild = os.fork()
            if not grandchild:
                os._exit(0 if cuda_works() else 1)
            code = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
    finally:
        os._exit(code)


def cuda_works() -> bool:
    """Return whether this process can have a CUDA context."""
    try:
        torch.cuda.init()
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _compiler() -> None:
    # Optimizers import the compiler at their first step.
    import torch._dynamo

    assert torch._dynamo


def _traces() -> None:
    torch.set_num_threads(1)
    for index in range(TRACED):
        estimate_need(generate(0, index))


def _optimizers() -> None:
    parameter = nn.Linear(4, 4)
    for index in range(TRACED):
        config = generate(0, index)
        if config.implementation == "default":
            for p in parameter.parameters():
                p.grad = torch.zeros_like(p)
            make_optimizer(config, parameter).step()


def _torchvision() -> None:
    import torchvision

    assert torchvision


def _timm() -> None:
    import timm

    assert timm


def _transformers() -> None:
    import transformers

    # The library loads its classes on first use.
    for name in ("AutoModelForMaskedLM", "AutoConfig"):
        getattr(transformers, name)

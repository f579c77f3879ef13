"""Scripts that evaluate before they train: over hundreds of batches that are alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traced import saved

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gpumemnet.tracing.script.libraries import evaluation  # noqa: E402
from gpumemnet.tracing.script.libraries.evaluation import Evaluations  # noqa: E402
from gpumemnet.tracing.trace.build import skip_inits  # noqa: E402
from gpumemnet.tracing.trace.cuda.device import pretended_cuda  # noqa: E402
from gpumemnet.tracing.trace.recording.recorder import Recorder  # noqa: E402
from gpumemnet.tracing.trace.recording.workspace import Workspaces  # noqa: E402


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(64, 4096, device="cuda"), nn.Linear(4096, 64, device="cuda")
        self.runs = 0

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, dict[str, object]]:
        self.runs += 1
        out = self.narrow(self.wide(x).relu()) * scale
        return out[1:], {"all": out, "mean": out.mean(), "name": "pair"}


def events_of(batches: int, *, again: bool, between: str = "") -> tuple[list[object], Pair]:
    """Evaluate and keep what comes; return the events with their keys numbered again, and the model."""
    recorder = Recorder(Workspaces())
    with pretended_cuda(), skip_inits(), recorder:
        model = Pair()
        evaluations = Evaluations(recorder)
        kept = []
        with torch.no_grad():
            for _ in range(batches):
                x = torch.empty(8, 64, device="cuda")
                kept.append(evaluations.call(model, x) if again else model(x))
                if between:
                    evaluations.forget()
        assert [part.shape for part, _ in kept] == [(7, 64)] * batches
        assert all(
            reported["all"].device.type == "cuda" and reported["name"] == "pair" for _, reported in kept
        )
        part, reported = kept[-1]
        assert part.untyped_storage()._cdata == reported["all"].untyped_storage()._cdata
        del x, kept, part, reported
        order: dict[int, int] = {}
        return [(order.setdefault(key, len(order)), size) for key, size in recorder.events], model


def test_what_is_noted_again_is_what_a_run_would_note() -> None:
    """Event by event: temporary tensors in their order, and what is kept until it ends."""
    plain, run = events_of(6, again=False)
    noted, skipped = events_of(6, again=True)
    assert (run.runs, skipped.runs) == (6, evaluation.WHOLE)
    assert sorted(map(str, noted)) == sorted(map(str, plain))
    assert noted == plain


def test_after_a_step_all_is_run_again() -> None:
    _, model = events_of(4, again=True, between="step")
    assert model.runs == 4


def test_what_depends_on_more_than_shapes_is_run() -> None:
    recorder = Recorder(Workspaces())
    with pretended_cuda(), recorder, torch.no_grad():
        model, evaluations = Pair(), Evaluations(recorder)
        x = torch.empty(8, 64, device="cuda")
        for n in range(4):
            evaluations.call(model, x, scale=float(n))  # another number each time
            evaluations.call(model, torch.empty(8 + n, 64, device="cuda"))  # another shape
        assert model.runs == 8
        with torch.enable_grad():
            for _ in range(4):
                evaluations.call(model, x)
        assert model.runs == 12


EVALUATES = """
    import torch
    from torch import nn

    class Counted(nn.Sequential):
        runs = 0
        def forward(self, x):
            Counted.runs += 1
            return super().forward(x)

    model = Counted(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64)).cuda()
    adam = torch.optim.Adam(model.parameters())
    for step in range(1000):
        model.eval()
        with torch.no_grad():
            print(sum(model(torch.rand(32, 64, device="cuda")).mean().item() for _ in range(500)))
        model.train()
        adam.zero_grad()
        model(torch.rand(32, 64, device="cuda")).mean().backward()
        adam.step()
        assert Counted.runs < 12, "evaluated in full"
"""


def test_a_script_that_evaluates_first_is_not_delayed(tmp_path: Path) -> None:
    done, found = saved(tmp_path, EVALUATES)
    assert found.profiles[0].parameters == 65 * 1024 + 1025 * 64
    assert json.loads(done.stdout)["warnings"] == []

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpumemnet.cli.answer import for_module, for_summary
from gpumemnet.errors import SummaryError, TraceError
from gpumemnet.tracing.trace import trace_module
from gpumemnet.training import TrainingSetup

pytest.importorskip("torch")

SOURCE = """
    import torch
    from torch import nn

    class Scores(nn.Module):
        def __init__(self, classes=7):
            super().__init__()
            self.layer = nn.Linear(5, classes)
        def forward(self, x, y=None):
            return self.layer(x if y is None else x + y)

    class OwnLoss(Scores):
        def forward(self, x):
            return {"loss": self.layer(x).sum(), "logits": self.layer(x)}

    ready = Scores()
    def model(): return Scores()
    def with_loss(): return Scores(), nn.CrossEntropyLoss()
    def with_function(): return Scores(), lambda output, target: (output - target).pow(2).mean()
    def with_regularizer(): return Scores(), lambda output: output.pow(2).mean()
    def own_loss(): return OwnLoss()
    def parts():
        return {
            "model": Scores(),
            "step": lambda model, inputs: model(inputs["x"]).sum(),
            "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        }
    def on_gpu():
        assert torch.cuda.is_available()
        return Scores().to("cuda").cuda()
    def moves_inputs():
        class Moves(Scores):
            def forward(self, x):
                return self.layer(x.cuda().to("cuda").to(x.device))
        return Moves()
    def wrong(): return 3
    def unknown_key(): return {"model": Scores(), "los": None}
    def breaks(): raise KeyError("no weights")
    number = 3
    """


@pytest.fixture
def spec(tmp_path: Path):
    path = tmp_path / "user model.py"
    path.write_text(textwrap.dedent(SOURCE))
    return lambda name: f"{path}:{name}"


@pytest.mark.parametrize(
    "name",
    ["ready", "model", "with_loss", "with_regularizer", "own_loss", "on_gpu", "moves_inputs", "Scores"],
)
def test_every_form_of_the_contract(spec, name: str) -> None:
    memory = trace_module(spec(name), inputs=["12x5"], setup=TrainingSetup())
    assert memory.parameters == 5 * 7 + 7
    assert memory.family == "mlp"
    assert memory.reserved_peak_bytes >= memory.allocated_peak_bytes > 64 << 20
    assert sum(memory.breakdown_bytes.values()) == memory.reserved_peak_bytes


def test_named_inputs_and_a_target(spec) -> None:
    inputs = ["x=12x5", "y=12x5", "target=12x7"]
    assert trace_module(spec("with_function"), inputs=inputs, setup=TrainingSetup()).parameters == 42
    with pytest.raises(TraceError, match="give its shape, as in --input target"):
        trace_module(spec("with_function"), inputs=inputs[:2], setup=TrainingSetup())


def test_step_and_optimizer_of_the_user(spec) -> None:
    memory = trace_module(spec("parts"), inputs=["x=12x5"], setup=TrainingSetup(optimizer="adam"))
    assert memory.breakdown_bytes["optimizer"] == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "has no 'nothing'"),
        ("wrong", "returned int"),
        ("unknown_key", "unknown key 'los'"),
        ("breaks", "failed: KeyError: 'no weights'"),
        ("number", "neither a function nor an nn.Module"),
    ],
)
def test_what_is_no_model_is_said_in_one_line(spec, name: str, said: str) -> None:
    with pytest.raises(TraceError) as caught:
        trace_module(spec(name), inputs=["12x5"], setup=TrainingSetup())
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["no.such.module:fn", "nofile.py:fn", "pkg", ":fn", "pkg:", "math:pi"])
def test_bad_names(text: str) -> None:
    with pytest.raises(TraceError) as caught:
        trace_module(text, inputs=["1x1"], setup=TrainingSetup())
    assert "\n" not in str(caught.value)


def test_wrong_shapes_are_the_models_own_words(spec) -> None:
    with pytest.raises(TraceError, match="does not run on these inputs"):
        trace_module(spec("model"), inputs=["12x6"], setup=TrainingSetup())


def test_torch_is_left_as_it_was(spec) -> None:
    import torch

    before = (torch.cuda.is_available(), torch.nn.init.uniform_, torch.clear_autocast_cache)
    trace_module(spec("model"), inputs=["12x5"], setup=TrainingSetup(precision="amp"))
    assert before == (torch.cuda.is_available(), torch.nn.init.uniform_, torch.clear_autocast_cache)
    x = torch.ones(3, 4)
    assert torch.nn.functional.dropout(torch.nn.functional.linear(x, torch.ones(5, 4)), 0.0).sum() == 60


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, gpumemnet.tracing.trace, gpumemnet.gpu_memory.allocator; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_a_module_came_to_is_kept_for_jobs(spec, tmp_path: Path) -> None:
    kept = tmp_path / "m.rad"
    setup = TrainingSetup(batch_size=64, optimizer="sgd")
    traced = for_module(spec("with_loss"), ["Bx5"], setup, gpu="h200", save=kept)
    read, _ = for_summary(str(kept), TrainingSetup(), gpu="h200")
    assert read.estimate_bytes == traced.estimate_bytes
    with pytest.raises(SummaryError, match="made for batch_size=64, not 65"):
        for_summary(str(kept), TrainingSetup(batch_size=65), gpu="h200")

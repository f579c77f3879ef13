"""`gpumemnet.save` and `gpumemnet.summary` on live models, and what lies between two traced batch sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import gpumemnet  # noqa: E402
from gpumemnet.errors import SetupError, TraceError  # noqa: E402
from gpumemnet.estimators.registry import estimate  # noqa: E402
from gpumemnet.profile.build import profile_with_warnings  # noqa: E402
from gpumemnet.summaries.texts.formats.detect import parse_text  # noqa: E402
from gpumemnet.tracing.saved.make import saved_profile  # noqa: E402
from gpumemnet.tracing.saved.record import SavedProfile  # noqa: E402
from gpumemnet.tracing.trace import trace_module  # noqa: E402
from gpumemnet.training import TrainingSetup  # noqa: E402


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm, self.act = (
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )

    def forward(self, x: Any) -> Any:
        return x + self.act(self.norm(self.conv(x)))


def convolutional() -> nn.Module:
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), Block(64), nn.MaxPool2d(2), Block(64), *head)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 10))


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    return nn.Sequential(nn.Embedding(1000, 128), nn.TransformerEncoder(layer, 3), nn.Linear(128, 1000))


def tokens(batch: int) -> Any:
    return torch.zeros(batch, 64, dtype=torch.int64)


MODELS: dict[str, tuple[Any, Any]] = {
    "convolutional": (convolutional, lambda batch: (batch, 3, 96, 96)),
    "perceptron": (perceptron, lambda batch: (batch, 784)),
    "encoder": (encoder, tokens),
}


@pytest.fixture(scope="module", params=MODELS)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    make, inputs = MODELS[request.param]
    path = tmp_path_factory.mktemp("saved") / "m.rad"
    gpumemnet.save(make(), inputs(32), path, optimizer="adamw")
    return make, inputs, path


@pytest.mark.parametrize("batch_size", [20, 24, 48])
def test_between_traced_batch_sizes_the_line_is_within_the_bound(kept: Any, batch_size: int) -> None:
    """The line against a trace at that batch size: within 6 %, and the trace below the line's bound."""
    make, inputs, path = kept
    found = profile_with_warnings(str(path), TrainingSetup(batch_size=batch_size))[0]
    (traced,) = (
        each
        for each in saved_profile(make(), inputs(batch_size), optimizer="adamw").profiles
        if each.batch_size == batch_size
    )
    line, truth = estimate(found), estimate(traced)
    assert line.estimate_bytes == pytest.approx(truth.estimate_bytes, rel=0.06)
    assert truth.estimate_bytes <= line.upper_bytes
    assert found.allocated_bytes == pytest.approx(traced.allocated_bytes, rel=0.03)


def test_the_file_says_what_a_trace_of_the_code_says(kept: Any, tmp_path: Path) -> None:
    """`gpumemnet.save` on the live model and `rad-estimate --module` on its code are one trace."""
    make, inputs, path = kept
    shape = inputs(32) if isinstance(inputs(32), tuple) else tuple(inputs(32).shape)
    kind = "float32" if isinstance(inputs(32), tuple) else "int64"
    (tmp_path / "code.py").write_text(f"from {__name__} import {make.__name__} as make\n")
    setup = TrainingSetup(batch_size=32, optimizer="adamw")  # type: ignore[arg-type]
    spec = f"{tmp_path / 'code.py'}:make"
    module = trace_module(spec, inputs=[f"{'x'.join(map(str, shape))}:{kind}"], setup=setup)
    saved = profile_with_warnings(str(path), TrainingSetup())[0]
    assert (saved.reserved_bytes, saved.parameters) == (module.reserved_peak_bytes, module.parameters)


@pytest.mark.parametrize("name", MODELS)
def test_the_printed_table_is_read_at_full_depth(name: str, tmp_path: Path, capsys: Any) -> None:
    make, inputs = MODELS[name]
    model = make()
    text = gpumemnet.summary(model, inputs(8), tmp_path / "m.rad")
    shown = capsys.readouterr().out
    assert shown.startswith(text)
    assert "#RAD model=" in shown
    read = parse_text(text, path="table")
    assert read.total_params == sum(p.numel() for p in model.parameters())
    assert read.batch_size == 8
    leaves = [layer for layer in read.layers if not layer.is_block]
    assert not any("hidden" in warning for warning in read.warnings)
    assert sum(layer.params or 0 for layer in leaves) == read.total_params
    from_text = estimate(profile_with_warnings(text, TrainingSetup())[0])
    from_trace = estimate(profile_with_warnings(str(tmp_path / "m.rad"), TrainingSetup())[0])
    assert from_text.estimate_bytes == pytest.approx(from_trace.estimate_bytes, rel=0.25)


def test_a_module_that_runs_twice_is_counted_once(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            return self.layer(self.layer(x))

    text = gpumemnet.summary(Twice(), (4, 16), tmp_path / "m.rad", verbose=False)
    assert "(recursive)" in text
    assert "Total params: 272" in text


def test_the_users_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = convolutional().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gpumemnet.summary(model, (4, 3, 32, 32), tmp_path / "m.rad", verbose=False, optimizer="sgd")
    assert not model.training
    assert all(p.grad is None and type(p) is nn.Parameter for p in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_an_optimizer_is_taken_with_its_settings(tmp_path: Path) -> None:
    model = perceptron()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    adam = saved_profile(model, (8, 784)).profiles[0]
    kept = saved_profile(model, (8, 784), optimizer=sgd).profiles[0]
    assert (kept.optimizer, adam.optimizer) == ("sgd-momentum", "adam")
    assert kept.optimizer_bytes * 2 == pytest.approx(adam.optimizer_bytes, rel=0.01)
    made = saved_profile(model, (8, 784), optimizer=lambda p: torch.optim.RMSprop(p, momentum=0.9)).profiles[
        0
    ]
    assert made.optimizer == "rmsprop"


def test_inputs_by_name_and_a_target(tmp_path: Path) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 4)

        def forward(self, left: Any, right: Any) -> Any:
            return self.layer(left + right)

    inputs = {"left": torch.zeros(8, 16), "right": torch.zeros(8, 16)}
    saved = saved_profile(
        Named(), inputs, loss=nn.CrossEntropyLoss(), target=torch.zeros(8, dtype=torch.int64), precision="amp"
    )
    assert saved.inputs == ("left=8x16:float32", "right=8x16:float32", "target=8:int64")
    assert [p.batch_size for p in saved.profiles] == [4, 8, 16]
    assert SavedProfile.from_text(saved.to_text(), path="m.rad") == saved


@pytest.mark.parametrize(
    ("inputs", "how", "error", "words"),
    [
        ((), {}, TraceError, "no inputs are given"),
        ("8x784", {}, TraceError, "pass a tensor or a shape"),
        ((8, 785), {}, TraceError, r"the model does not run on these inputs.*\[8, 785\]"),
        ((8, 784), {"optimizer": "lion"}, SetupError, "known: sgd"),
        ((8, 784), {"precision": "fp8"}, SetupError, "fp8"),
    ],
)
def test_what_cannot_be_traced_says_why_in_one_line_and_writes_nothing(
    inputs: Any, how: dict[str, Any], error: type[Exception], words: str, tmp_path: Path, capfd: Any
) -> None:
    with pytest.raises(error, match=words) as caught:
        gpumemnet.save(perceptron(), inputs, tmp_path / "m.rad", **how)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")

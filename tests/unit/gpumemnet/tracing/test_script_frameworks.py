"""Scripts of other frameworks than PyTorch: one line, before anything trains. The frameworks are small stand-ins."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest

from gpumemnet.tracing.script import frameworks
from gpumemnet.tracing.script.start import Untraced, run

ROOT = Path(__file__).resolve().parents[4]
STANDINS = {
    "jax/__init__.py": "def value_and_grad(f): return f\ndef grad(f): return f\ndef jit(f): return f\n",
    "optax/__init__.py": "def adam(rate): return rate\n",
    "tensorflow/__init__.py": (
        "class GradientTape:\n    def __enter__(self): return self\n    def __exit__(self, *_): return None\n"
    ),
    "tensorflow/keras/__init__.py": "class Model:\n    def fit(self): return self\nclass Sequential(Model): pass\n",
    "keras/__init__.py": "class Model:\n    def fit(self): return self\nclass Sequential(Model): pass\n",
    "torch/__init__.py": "",
}
TRAINS = "\nprint('trains')\nopen('weights', 'w').write('new')\n"
SCRIPTS = {
    "jax.grad": ("import jax; jax.value_and_grad(print)", "JAX"),
    "jax, by an optimizer": ("import jax, optax", "JAX"),
    "jax, reported at its end": ("import jax; jax.jit(print)", "JAX"),
    "a tape": ("import tensorflow as tf\nwith tf.GradientTape(): pass", "TensorFlow"),
    "tensorflow.keras": ("from tensorflow import keras; keras.Sequential().fit()", "TensorFlow"),
    "keras": ("import keras; keras.Model().fit()", "Keras"),
    "none is installed": ("import mxnet", "MXNet"),
}


def traced(folder: Path, code: str) -> str:
    for name, text in STANDINS.items():
        (folder / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "site" / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    found = run([sys.executable, "-c", code + TRAINS], environment=environment)
    assert isinstance(found, Untraced)
    return found.why


@pytest.mark.parametrize("kind", SCRIPTS)
def test_another_framework_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").write_text("trained for a week")
    code, name = SCRIPTS[kind]
    assert traced(tmp_path, code) == frameworks.line(name)
    assert "#RAD " in frameworks.line(name)
    assert (tmp_path / "weights").read_text() == "trained for a week"


@pytest.mark.parametrize(
    "code", ["import tensorflow, torch", "import torch, tensorflow, jax; jax.grad(print)"]
)
def test_a_script_that_has_torch_too_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.chdir(tmp_path)  # where the kernel allows no copies, new files stay
    hook = "import sys; sys.meta_path[:] = [each for each in sys.meta_path if getattr(each, '_module', '') != 'torch']"
    assert "its last words: trains" in traced(tmp_path, f"{hook}\n{code}")


def test_only_rad_estimate_starts_a_users_script() -> None:
    """The hooks, and cli_filter at every sbatch, read texts: what they load never reaches what starts a script."""
    users = set()
    for package in ("gpumemnet", "slurm_plugin", "prolog", "epilog"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if "gpumemnet.tracing.script" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                names = [node.module] if isinstance(node, ast.ImportFrom) else []
                names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
                if any((name or "").startswith("gpumemnet.tracing.script") for name in names):
                    users.add(str(path.relative_to(ROOT)))
    assert {name for name in users if not name.startswith("gpumemnet/tracing/script/")} == {
        "gpumemnet/cli/answer.py",
        "gpumemnet/cli/retrace.py",
    }
    source = (ROOT / "gpumemnet" / "cli" / "answer.py").read_text()
    callers = [path for path in (ROOT / "slurm_plugin").rglob("*.*") if b"for_script" in path.read_bytes()]
    assert source.count("start.run(") == 1 and not callers

"""Load the object that the user's `pkg.mod:name` names: a model, and optionally a loss, a step and an optimizer."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpumemnet.errors import TraceError
from gpumemnet.records import frozen
from gpumemnet.tracing.trace import hugging_face


@frozen
class Target:
    """Model and training functions built from the user's object.

    Attributes:
        model: An nn.Module on the CPU.
        loss: loss(output, target) -> scalar; None for the default.
        step: step(model, inputs) -> scalar; None for the default.
        optimizer: optimizer(parameters) -> torch.optim.Optimizer; None for the setup's.
    """

    model: Any
    loss: Callable[..., Any] | None = None
    step: Callable[..., Any] | None = None
    optimizer: Callable[..., Any] | None = None


KEYS = ("model", "loss", "step", "optimizer")


def find(spec: str) -> Any:
    """Import the object that `spec` names.

    Raises:
        TraceError: There is no such module, file or name, or importing it fails.
    """
    if spec.startswith(hugging_face.PREFIX):
        return hugging_face.finder(spec)
    where, colon, name = spec.rpartition(":")
    if not colon or not where or not name:
        raise TraceError(f"'{spec[:80]}' is not pkg.mod:name; name a function that returns the model")
    try:
        module = _from_file(Path(where)) if where.endswith(".py") else _from_path(where)
    except Exception as exc:
        raise TraceError(f"cannot import {where}: {_message(exc)}") from exc
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TraceError(f"{where} has no '{name}'; name a function or an nn.Module in it")
        found = getattr(found, part)
    return found


def build(found: Any, spec: str) -> Target:
    """Make the model: call the function, or use the module itself.

    Args:
        found: A function or a module.
        spec: The name as typed by the user, for messages.

    Raises:
        TraceError: The function fails or returns something else.
    """
    from torch import nn

    made = found
    if not isinstance(found, nn.Module):
        if not callable(found):
            raise TraceError(f"{spec} is neither a function nor an nn.Module")
        try:
            made = found()
        except Exception as exc:
            raise TraceError(f"{spec} failed: {_message(exc)}") from exc
    if isinstance(made, nn.Module):
        return Target(model=made)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module) and callable(made[1]):
        return Target(model=made[0], loss=made[1])
    if isinstance(made, dict) and isinstance(made.get("model"), nn.Module):
        unknown = [key for key in made if key not in KEYS]
        if unknown:
            raise TraceError(f"{spec} returned the unknown key '{unknown[0]}'; known: {', '.join(KEYS)}")
        return Target(**made)
    raise TraceError(f"{spec} returned {type(made).__name__}; return a model, (model, loss) or a dictionary")


def _message(exc: BaseException) -> str:
    """Return an exception's message in one line."""
    text = " ".join(str(exc).split())
    return f"{type(exc).__name__}: {text[:300]}" if text else type(exc).__name__


def _from_path(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    module = importlib.util.module_from_spec(spec)
    # The file's folder first, as for `python path/to/file.py`.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module

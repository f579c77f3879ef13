"""End scripts that train with another framework than PyTorch, with a message, before any training.

Loading one is no proof: PyTorch scripts read data with TensorFlow. The proof is the first derivative or the first `fit`
in a process without torch.

Standard library only, and no annotation that an older Python rejects: any Python the user starts loads this.
"""

from __future__ import annotations

import atexit
import os
import sys
from functools import partial, wraps
from typing import Any

from gpumemnet.tracing.script.files import FAILED
from gpumemnet.tracing.script.libraries.imported import After

_MEMORY = "state what it needs: #RAD memory=12G"
_SUMMARY = "save the text of model.summary() and name it: #RAD model=FILE batch_size=N; or " + _MEMORY
WAYS = {"JAX": _MEMORY, "TensorFlow": _SUMMARY, "Keras": _SUMMARY, "PaddlePaddle": _MEMORY, "MXNet": _MEMORY}
"""Frameworks, and the alternative to a trace for each."""
_NAMES = {
    **dict.fromkeys(("jax", "jaxlib", "flax", "optax", "haiku", "equinox"), "JAX"),
    **dict.fromkeys(("tensorflow", "tf_keras"), "TensorFlow"),
    "keras": "Keras",
    "paddle": "PaddlePaddle",
    "mxnet": "MXNet",
}
# Per module: attributes of it or of its classes that begin a training.
_BEGINS = {
    "jax": ("grad", "value_and_grad", "vjp", "jvp", "linearize", "hessian", "jacfwd", "jacrev"),
    "tensorflow": ("GradientTape.__enter__",),
    "keras": ("Model.fit", "Model.train_on_batch", "Sequential.fit"),
    "tensorflow.keras": ("Model.fit", "Model.train_on_batch", "Sequential.fit"),
    "tf_keras": ("Model.fit", "Model.train_on_batch", "Sequential.fit"),
    "paddle": ("Tensor.backward", "Model.fit"),
    "mxnet.autograd": ("record",),
}
_ALONE = ("optax",)
"""Modules that only a training loads."""


def line(name: str) -> str:
    """Return the message for the user."""
    return f"it trains with {name}, and a trace sees only PyTorch; {WAYS[name]}"


def missing(module: str) -> str:
    """Return the framework of a missing module; "" if none."""
    return _NAMES.get(module.partition(".")[0], "")


def watch(folder: str) -> None:
    """End this process when one of the frameworks begins to train in it."""
    process = os.getpid()

    def is_there(name: str) -> bool:
        if "torch" in sys.modules or os.path.exists(os.path.join(folder, FAILED)):
            return False
        with open(os.path.join(folder, FAILED), "w", encoding="utf-8") as file:
            file.write(line(name) + "\n")
        return True

    def end(name: str) -> None:
        if is_there(name):
            os._exit(1)

    def loaded(module: str) -> None:
        for path in _BEGINS.get(module, ()):
            _before(sys.modules[module], path, partial(end, _NAMES[module.partition(".")[0]]))
        if module in _ALONE:
            end(_NAMES[module])

    def at_exit() -> None:
        met = [name for module, name in _NAMES.items() if module in sys.modules]
        if met and os.getpid() == process:
            is_there(met[0])  # another part of the command may train with torch

    for module in (*_BEGINS, *_ALONE):
        sys.meta_path.insert(0, After(module, partial(loaded, module)))
    atexit.register(at_exit)


def _before(owner: Any, path: str, first: Any) -> None:
    """Run a function before a function of a module, or of a class in it, is called."""
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each, None)
    function = getattr(owner, name, None)
    if function is None:
        return

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        first()
        return function(*args, **kwargs)

    try:
        setattr(owner, name, call)
    except (AttributeError, TypeError):
        return  # then the script's end reports it

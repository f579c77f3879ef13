"""The typed options of `rad-estimate`, and the conversion of GPU types and shapes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gpumemnet.directives.values import amount_of_memory
from gpumemnet.errors import SetupError
from gpumemnet.gpus import DEFAULT_GPU, Gpu, gpu_named, gpu_of_memory


class Options(NamedTuple):
    """The options of the command that are not settings of the training; `rad-estimate --help` explains them."""

    summary: str | None = None
    gpu: str | None = None
    gpu_memory: str | None = None
    estimator: str | None = None
    module: str | None = None
    inputs: tuple[str, ...] = ()
    config: Path | None = None
    typed: str = ""
    ask: bool = False
    largest: bool = False
    sweep: bool = False
    compare: bool = False
    plot: str | None = None
    as_json: bool = False
    explain: bool = False
    sbatch: bool = False
    save: Path | None = None


def gpu_model_of(options: Options) -> Gpu:
    """Return the type of GPU that the options name; an unknown type needs its memory size.

    Raises:
        SetupError: It is unknown, or its memory is not an amount.
    """
    if options.gpu_memory is None:
        return gpu_named(options.gpu or DEFAULT_GPU)
    return gpu_of_memory(options.gpu or "GPU", amount_of_memory(options.gpu_memory, "--gpu-memory"))


def shape_of(inputs: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return the shape in a text such as "8x3x224x224"; None without inputs.

    Raises:
        SetupError: It is not a shape.
    """
    if not inputs:
        return None
    words = inputs[0].lower().split("x")
    if len(inputs) > 1 or not all(word.isascii() and word.isdigit() and int(word[:12]) > 0 for word in words):
        raise SetupError(f"--input {inputs[0][:40]} is not a shape; write for example --input 128x3x224x224")
    return tuple(int(word) for word in words)

"""`rad calibrate`: measure this GPU's base memory and print the lines for rad.toml."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpumemnet
from slurm_plugin.core.errors import CommandError, EstimateError
from slurm_plugin.core.process.run import run
from slurm_plugin.core.units import to_mib_up

KINDS = {"conv": "conv_base_mib", "dense": "base_mib"}
"""Measured kind -> its key in rad.toml."""

PROGRAMS = Path(gpumemnet.__file__).parent / "calibration" / "measure"
_TIMEOUT_S = 180.0
"""A first import of torch from a cold disk takes a minute; the measurement itself takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Base memory of one kind of process.

    Attributes:
        key: Its key in rad.toml.
        base_bytes: Memory beyond what PyTorch's allocator reserves.
        gpu: Product name.
        torch: PyTorch's version.
    """

    key: str
    base_bytes: int
    gpu: str
    torch: str


def measure(python: str, env: Mapping[str, str], *, program: Path | None = None) -> list[Base]:
    """Measure both kinds on the GPU that this process would get.

    Args:
        python: A Python with torch, as jobs use it.
        env: Its environment.
        program: The measuring program; None for gpumemnet/calibration/measure/base.py.

    Returns:
        One for each of KINDS.

    Raises:
        EstimateError: There is no GPU or no torch, or the driver does not report it.
    """
    script = program or PROGRAMS / "base.py"
    found = []
    for kind, key in KINDS.items():
        answer = run_program(python, script, kind, env=env)
        try:
            found.append(
                Base(key=key, base_bytes=answer["base_bytes"], gpu=answer["gpu"], torch=answer["torch"])
            )
        except KeyError as exc:
            raise EstimateError(f"{script} printed no usable result ({exc!r})") from exc
    return found


def run_program(python: str, script: Path, *arguments: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Run a measuring program, and return the JSON object in its last line.

    Args:
        python: A Python that has torch.
        script: The program.
        arguments: Its arguments.
        env: Its environment.

    Returns:
        The object.

    Raises:
        EstimateError: It failed, or printed something else.
    """
    try:
        answer = json.loads(
            run([python, str(script), *arguments], timeout_s=_TIMEOUT_S, env=env).splitlines()[-1]
        )
    except CommandError as exc:
        raise EstimateError(f"{exc}; --python must name a Python with torch and a GPU") from exc
    except (ValueError, IndexError) as exc:
        raise EstimateError(f"{script} printed no usable result ({exc!r})") from exc
    if not isinstance(answer, dict):
        raise EstimateError(f"{script} printed no usable result ({str(answer)[:60]!r})")
    return answer


def as_text(bases: list[Base]) -> str:
    """Return the lines for rad.toml."""
    origin = {f"{base.gpu}, PyTorch {base.torch}" for base in bases}
    lines = [f"{base.key} = {to_mib_up(base.base_bytes)}" for base in bases]
    return "\n".join(
        [f"# measured on {', '.join(sorted(origin))}; put this at the head of rad.toml:", *lines]
    )

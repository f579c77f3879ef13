"""Parts of the measurement of `rad calibrate --deep`: one program run and its numbers per part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPart:
    """One measurement, in a separate process.

    Attributes:
        name: Key of its result.
        program: File in gpumemnet/calibration/measure/.
        arguments: Arguments of the program.
        takes_s: Approximate duration, most of it importing torch.
        measures: The rules that follow from it.
    """

    name: str
    program: str
    arguments: tuple[str, ...]
    takes_s: int
    measures: str


def _part(name: str, program: str, takes_s: int, measures: str, *arguments: str) -> MeasuredPart:
    return MeasuredPart(
        name=name, program=program, arguments=arguments or (name,), takes_s=takes_s, measures=measures
    )


PARTS = (
    _part("device", "rules.py", 10, "versions, memory, multiprocessors"),
    _part("conv", "base.py", 15, "base of a process with convolutions"),
    _part("dense", "base.py", 15, "base of other processes"),
    _part("convs_only", "base.py", 15, "how much lower the base is without cuBLAS"),
    _part("segments", "rules.py", 10, "the allocator's segments and thresholds"),
    _part("cublas", "rules.py", 10, "workspaces of cuBLAS and cuBLASLt"),
    *(
        _part(
            f"convolutions-{seed}",
            "convolutions.py",
            30,
            "cuDNN's workspaces, by 260 drawn convolutions",
            *((str(seed), "near") if seed % 2 else (str(seed),)),
        )
        for seed in range(4)
    ),
    _part("mps", "rules.py", 20, "memory of an MPS server and of a client's context"),
)
CONVOLUTIONS = tuple(part.name for part in PARTS if part.program == "convolutions.py")

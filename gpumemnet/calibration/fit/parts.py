"""Parts of the measurement of `rad calibrate --deep`: one program run and its numbers per part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
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


PARTS = (
    Part(
        name="device",
        program="rules.py",
        arguments=("device",),
        takes_s=10,
        measures="versions, memory, multiprocessors",
    ),
    Part(
        name="conv",
        program="base.py",
        arguments=("conv",),
        takes_s=15,
        measures="base of a process with convolutions",
    ),
    Part(
        name="dense",
        program="base.py",
        arguments=("dense",),
        takes_s=15,
        measures="base of other processes",
    ),
    Part(
        name="convs_only",
        program="base.py",
        arguments=("convs_only",),
        takes_s=15,
        measures="how much lower the base is without cuBLAS",
    ),
    Part(
        name="segments",
        program="rules.py",
        arguments=("segments",),
        takes_s=10,
        measures="the allocator's segments and thresholds",
    ),
    Part(
        name="cublas",
        program="rules.py",
        arguments=("cublas",),
        takes_s=10,
        measures="workspaces of cuBLAS and cuBLASLt",
    ),
    *(
        Part(
            name=f"convolutions-{seed}",
            program="convolutions.py",
            arguments=(str(seed), "near") if seed % 2 else (str(seed),),
            takes_s=30,
            measures="cuDNN's workspaces, by 260 drawn convolutions",
        )
        for seed in range(4)
    ),
    Part(
        name="mps",
        program="rules.py",
        arguments=("mps",),
        takes_s=20,
        measures="memory of an MPS server and of a client's context",
    ),
)
CONVOLUTIONS = tuple(part.name for part in PARTS if part.program == "convolutions.py")

"""Hardware that slurmd finds on this machine, printed without starting it (slurmd(8), -C and -G).

Tested on 22.05.8 and 24.11.5. `-G` reads gres.conf and queries the GPUs if AutoDetect says so; `-C` reads no file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.core.errors import CommandError
from slurm_plugin.core.process.run import run
from slurm_plugin.slurm.environment import slurm_environment

_GRES = re.compile(r"Gres Name=(\w+) Type=(\S+) Count=(\d+)")
_NO_DEVICE = re.compile(r"error: (/\S+) is not a valid character or block device")
_MEMORY = re.compile(r"\bRealMemory=(\d+)")
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """One machine.

    Attributes:
        memory_mib: Its host memory; None if slurmd does not report it.
        gpus: Number of GPUs that slurmd would register.
        shards: Number of shards.
        no_devices: Files of gres.conf that are no devices: slurmd counts them, and jobs start without their GPU.
    """

    memory_mib: int | None
    gpus: int
    shards: int
    no_devices: tuple[str, ...] = ()


def detect(slurm_conf: Path) -> Detected | None:
    """Return what slurmd finds here; None if there is no slurmd, or this machine is not a node of that slurm.conf.

    Args:
        slurm_conf: The file that slurmd would read.
    """
    asking = slurm_environment(slurm_conf)
    try:
        hardware = run(["slurmd", "-C"], timeout_s=_ANSWER_S, env=asking)
        gres = run(["slurmd", "-G", "-f", str(slurm_conf)], timeout_s=_ANSWER_S, env=asking, with_errors=True)
    except CommandError:
        return None
    return read_detected(hardware, gres)


def read_detected(hardware: str, gres: str) -> Detected | None:
    r"""Return what slurmd printed; None if it names no GRES at all.

    Args:
        hardware: Output of `slurmd -C`.
        gres: Output of `slurmd -G`, stderr included.

    >>> read_detected("NodeName=n RealMemory=9", "slurmd: Gres Name=gpu Type=(null) Count=1 Index=0\\n")
    Detected(memory_mib=9, gpus=1, shards=0, no_devices=())
    """
    rows = _GRES.findall(gres)
    memory = _MEMORY.search(hardware)
    if not rows:
        return None
    counts = {name: sum(int(count) for kind, _, count in rows if kind == name) for name in ("gpu", "shard")}
    return Detected(
        memory_mib=int(memory[1]) if memory else None,
        gpus=counts["gpu"],
        shards=counts["shard"],
        no_devices=tuple(dict.fromkeys(_NO_DEVICE.findall(gres))),
    )

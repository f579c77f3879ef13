"""Measure jobs of two GPUs under one MPS daemon over all GPUs of a node.

    PYTHONPATH=bench:tests:. python -m two_gpu_jobs --out two_gpu_jobs.json [--only copies|nccl|facts] [--seconds 8]

As root on a host with two GPUs, PyTorch and transformers, with both to itself; about two minutes.

- copies, nccl: steps a second of a training on both GPUs (one process that copies gradients; two processes under NCCL)
  and of four trainings next to it on each: each GPU's behind a daemon of their own and the two-GPU one past MPS
  (`apart`), all behind one daemon (`node`), and none behind any (`streams`).
- facts: what such a daemon costs each GPU, to which GPU a limit applies, and which clients a fatal fault ends.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from two_gpu_jobs.place import CLOCK, AnsweringProgram, more_mib, mps, used_mib

BOTH = "xlnet_large_cased_2"
NEIGHBOURS = ("resnet", "BERT_base", "efficientNet_cifar100_50e_2", "mobilenet3")
WAYS = ("apart", "node", "streams")
NOTICES_S = 3.0
"""How long a client may take to meet an error."""
Ask = Callable[[Mapping[str, str]], dict[str, Any]]


def speeds(folder: Path, gpus: Sequence[str], seconds: float, *, nccl: bool) -> dict[str, Any]:
    """Return steps a second of every training, in each way.

    Args:
        folder: For daemons.
        gpus: Their UUIDs.
        seconds: To train for.
        nccl: Whether the two-GPU training is two processes.
    """
    found = {}
    for way in WAYS:
        with ExitStack() as stack:
            env_of: dict[str, Mapping[str, str]] = {gpu: {} for gpu in (*gpus, ",".join(gpus))}
            if way == "apart":
                env_of |= {gpu: stack.enter_context(mps(folder / way, [gpu]))[0] for gpu in gpus}
            elif way == "node":
                env_of = dict.fromkeys(env_of, stack.enter_context(mps(folder / way, gpus))[0])

            def started(seen: str, *arguments: object, env_of=env_of, stack=stack) -> AnsweringProgram:
                child = AnsweringProgram(
                    "train", *arguments, env=env_of[seen] | {"CUDA_VISIBLE_DEVICES": seen}
                )
                stack.callback(child.end)
                return child

            store = (folder / f"store-{way}",)
            ranks: list[tuple[object, ...]] = [(0, *store), (1, *store)] if nccl else [()]
            both = [started(",".join(gpus), BOTH, len(gpus), *rank) for rank in ranks]
            neighbours = [started(gpu, name, 1) for gpu in gpus for name in NEIGHBOURS]
            ready = [child.answer() for child in (*both, *neighbours)]
            found[way] = {
                "unready": [line for line in ready if line != "ready"],
                "alone": _rates(both, seconds / 2)[0],
                "beside_without": _rates(neighbours, seconds / 2),
            }
            rates = _rates([*both, *neighbours], seconds)
            found[way] |= {"both": rates[0], "beside": rates[len(both) :]}
            print(way, json.dumps(found[way]), flush=True)
    return found


def _rates(children: Sequence[AnsweringProgram], seconds: float) -> list[float | None]:
    for child in children:
        child.tell(seconds)
    return [child.rate() for child in children]


def facts(folder: Path, gpus: Sequence[str]) -> dict[str, Any]:
    """Return what a daemon over all GPUs costs, which clients its limits bind, and which a fault of one client ends."""
    found: dict[str, Any] = {}
    checks: dict[str, tuple[Ask, Mapping[int, int]]] = {
        "cost": (lambda env: _cost(env, gpus), {}),
        "limits": (lambda env: _limits(env, gpus), {0: 2600, 1: 4600}),
        "fault": (lambda env: _fault(env, gpus, on_both=False), {}),
        "fault-both": (lambda env: _fault(env, gpus, on_both=True), {}),
    }
    for name, (ask, limits) in checks.items():
        with mps(folder / name, gpus, limits) as (env, costs):
            found[name] = ask(env) | {"daemon": costs}
        print(name, json.dumps(found[name]), flush=True)
    return found


def _holding(env: Mapping[str, str], seen: str, mib: int, *more: str, **variables: str) -> AnsweringProgram:
    return AnsweringProgram("hold", mib, *more, env={**env, "CUDA_VISIBLE_DEVICES": seen, **variables})


def _cost(env: Mapping[str, str], gpus: Sequence[str]) -> dict[str, Any]:
    before = used_mib()
    child = _holding(env, gpus[1], 100)
    line, took_mib = child.answer(), more_mib(before)
    child.end()
    return {"client on the second GPU": line, "took_mib": took_mib}


def _limits(env: Mapping[str, str], gpus: Sequence[str]) -> dict[str, Any]:
    lines = {}
    own = {"0=1000M": "0", "1=1000M": "1", f"{gpus[1]}=1000M": "UUID"}
    for ordinal, gpu in enumerate(gpus):
        for mib in (1500, 3000, 5000):
            lines[f"{mib} MiB on GPU {ordinal}"] = _ended(_holding(env, gpu, mib))
    for said, name in own.items():
        child = _holding(env, gpus[1], 1500, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=said)
        lines[f"1500 MiB on GPU 1, its client caps {name} at 1000"] = _ended(child)
    return lines


def _ended(child: AnsweringProgram) -> str:
    line = child.answer()
    child.end()
    return line


def _fault(env: Mapping[str, str], gpus: Sequence[str], *, on_both: bool) -> dict[str, Any]:
    children = {"on the first": _holding(env, gpus[0], 100), "on the second": _holding(env, gpus[1], 100)}
    if on_both:
        children["on both"] = _holding(env, ",".join(gpus), 100)
    culprit = _holding(env, gpus[0], 100, "fault")
    ready = [child.answer() for child in (*children.values(), culprit)]
    culprit.tell("now")
    culprit.process.wait(timeout=20)
    CLOCK.sleep(NOTICES_S)
    lives = {name: child.lives() for name, child in children.items()}
    late = _holding(env, gpus[1], 100)
    answer = {"ready": ready, "lives": lives, "a client that comes then": late.answer()}
    for child in (*children.values(), culprit, late):
        child.end()
    return answer


def main() -> None:
    """Ask, and write what was seen."""
    parser = argparse.ArgumentParser(
        prog="two_gpu_jobs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=("copies", "nccl", "facts"))
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    devices = NvmlTelemetry().read()[:2]
    gpus = [gpu.uuid for gpu in devices]
    result: dict[str, Any] = {"gpus": [gpu.name for gpu in devices]}
    with tempfile.TemporaryDirectory(dir="/run") as root:
        folder, seconds = Path(root), options.seconds
        checks: dict[str, Callable[[], dict[str, Any]]] = {
            "copies": lambda: speeds(folder / "c", gpus, seconds, nccl=False),
            "nccl": lambda: speeds(folder / "n", gpus, seconds, nccl=True),
            "facts": lambda: facts(folder / "f", gpus),
        }
        for name, ask in checks.items():
            if options.only in (None, name):
                (folder / name[0]).mkdir()
                result[name] = ask()
                options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

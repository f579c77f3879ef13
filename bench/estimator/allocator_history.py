"""Record what PyTorch's allocator does in trainings: python bench/estimator/allocator_history.py --out FOLDER.

For a GPU machine with torch, torchvision, timm and transformers. Trains models that are not held out as
gpumemnet/learning/dataset/running/measure.py does, each in a forked process of its own, several at once, and keeps
the history that PyTorch records of every allocation and free; some processes run single convolutions of drawn
shapes instead, whose history shows what cuDNN borrows for each. One line of JSON for each process goes to
FOLDER/history.jsonl.xz:

- "config" as in the dataset, or "sweep", the list of convolutions;
- "events": one character for each event ("a" allocated, "f" freed, "s" segment, "S" segment given back, "o" out of
  memory), with "sizes" (bytes, for a, s and S) and "addresses" (in units of 512 bytes above the lowest);
- "marks": [events before by the clock, allocations before, name] where a phase ends, or a convolution's part begins;
- what `measure.train` says, and the memory of the process as NVML shows it.

A model that fails is a line with "error"; when the time is up what still runs is killed and what is done stays.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gpu_campaign.history import History

from gpumemnet.calibration.measure.convolutions import convolutions
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.units import GIB, MIB

SEED = 4711
SWEEPS = 12
TOTAL_BYTES = int(11.5 * MIB)
SLOTS = 12
UNKNOWN_NEED = 16 * GIB
ONE_LIMIT_S = 75.0

# source:name:size[:task]  batch sizes  precisions  optimizer
MODELS = """
torchvision:vgg13:224 16,96 fp32,amp,bf16 sgd
torchvision:vgg19_bn:224 32 fp32,amp sgd
torchvision:shufflenet_v2_x0_5:224 64,256 fp32,amp,bf16 sgd
torchvision:shufflenet_v2_x1_5:224 128 fp32,amp adamw
timm:inception_v4:299 32,128 fp32,amp,bf16 sgd
timm:inception_resnet_v2:299 32 fp32,amp sgd
torchvision:resnet152:224 16,64 fp32,amp,bf16 sgd-momentum
torchvision:densenet161:224 16,64 fp32,amp,bf16 sgd
torchvision:squeezenet1_0:224 32,256 fp32,amp,bf16 sgd
torchvision:mnasnet0_5:224 256 fp32,amp sgd
torchvision:mnasnet1_3:224 64 fp32,bf16 adam
torchvision:regnet_x_400mf:224 256 fp32,amp sgd
torchvision:regnet_x_8gf:224 32 fp32,bf16 sgd
torchvision:resnext101_32x8d:224 32 fp32,amp sgd
torchvision:wide_resnet101_2:224 32 fp32,bf16 sgd
torchvision:mobilenet_v3_small:224 256 fp32,amp adam
torchvision:efficientnet_b3:300 48 fp32,amp sgd
torchvision:efficientnet_v2_m:300 24 fp32,bf16 sgd
torchvision:convnext_small:224 32 fp32,amp sgd
transformers:mt5:256:Seq2SeqLM 4,16 fp32,amp,bf16 sgd
transformers:umt5:256:Seq2SeqLM 8 fp32,amp sgd
transformers:longt5:256:Seq2SeqLM 16 fp32,amp adam
transformers:pegasus:256:Seq2SeqLM 16 fp32,amp sgd
transformers:mbart:256:Seq2SeqLM 8 fp32,bf16 sgd
transformers:marian:256:Seq2SeqLM 16 fp32,amp adafactor
timm:xception71:299 32 fp32,amp sgd
timm:cspresnet50:256 64 fp32,bf16 sgd
timm:res2net50_26w_4s:224 64 fp32,amp sgd
timm:dla34:224 128 fp32,amp sgd
timm:ese_vovnet19b_dw:224 128 fp32,amp sgd
timm:vovnet39a:224 64 fp32,amp sgd
timm:repvgg_a2:224 64 fp32,amp sgd
timm:nasnetalarge:224 16 fp32,amp sgd
timm:darknet53:256 64 fp32,bf16 sgd
timm:resnest26d:224 64 fp32,amp sgd
timm:skresnet34:224 64 fp32,bf16 sgd
timm:tresnet_m:224 64 fp32,amp sgd
timm:mobilenetv4_conv_small:224 256 fp32,amp adamw
timm:visformer_small:224 64 fp32,amp sgd
timm:mobilevit_s:256 64 fp32,bf16 sgd
torchvision:swin_s:224 32 fp32,amp sgd
torchvision:vit_b_32:224 128 fp32,amp adam
transformers:gpt_bigcode:512:CausalLM 16 fp32,amp sgd
transformers:mpnet:256:SequenceClassification 32 fp32,bf16 adamw
transformers:xlnet:256:SequenceClassification 16 fp32,amp sgd
transformers:deberta:256:SequenceClassification 16 fp32,amp sgd
transformers:squeezebert:256:SequenceClassification 32 fp32,amp sgd
transformers:funnel:256:SequenceClassification 16 fp32,amp adafactor
transformers:roformer:256:MaskedLM 16 fp32,amp rmsprop
transformers:convbert:256:SequenceClassification 32 fp32,amp sgd
"""


def configurations() -> list[Configuration]:
    """Return what is trained, the first of each model's variants first, so that a short time still shows all."""
    found: list[tuple[int, Configuration]] = []
    for line in MODELS.strip().splitlines():
        model, batches, precisions, optimizer = line.split()
        source, name, size, *task = model.split(":")
        arch: dict[str, Any] = {"source": source, "name": name, "size": int(size)}
        if task:
            arch["task"] = task[0]
        variants = [(batch, p) for p in precisions.split(",") for batch in batches.split(",")]
        for rank, (batch, precision) in enumerate(variants):
            config = Configuration(
                seed=SEED,
                index=len(found),
                family="real",
                style=f"{source}:{name}",
                arch=arch,
                batch_size=int(batch),
                seq_len=int(size) if task else None,
                optimizer=optimizer,  # type: ignore[arg-type]
                precision=precision,  # type: ignore[arg-type]
            )
            found.append((rank, config))
    return [config for _, config in sorted(found, key=lambda pair: (pair[0], pair[1].index))]


def process_bytes() -> dict[str, Any]:
    """Return what NVML says this process holds, or why that is not known."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        rows = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        used_bytes = {row.pid: row.usedGpuMemory for row in rows}
        return (
            {"process_peak_bytes": used_bytes.get(os.getpid())}
            if os.getpid() in used_bytes
            else {"nvml": str(used_bytes)[:300]}
        )
    except Exception as exc:  # noqa: BLE001 - a figure less, no run less
        return {"nvml": f"{type(exc).__name__}: {exc}"[:200]}


def train_one(config: Configuration, claim: Callable[[int], None]) -> dict[str, Any]:
    """Train as the dataset does, under PyTorch's history."""
    import torch

    from gpumemnet.learning.dataset.running import measure
    from gpumemnet.learning.dataset.running.need import estimate_need, reservation

    try:
        need_bytes = reservation(estimate_need(config).total_bytes)
    except Exception:  # noqa: BLE001 - the need is only a hint
        need_bytes = UNKNOWN_NEED
    claim(need_bytes)
    history = History()
    close = measure.PhasePeaks.close

    def closed(self: measure.PhasePeaks, phase: str) -> None:
        history.mark(phase)
        close(self, phase)

    measure.PhasePeaks.close = closed  # type: ignore[method-assign]
    record: dict[str, Any] = {"config": config.to_json()}
    try:
        record |= measure.train(config, torch.device("cuda:0"), build_on_cpu=True)
    except Exception as exc:  # noqa: BLE001 - the history up to here is still worth keeping
        record |= {"outcome": "error", "error": f"{type(exc).__name__}: {exc}"[:400]}
    return record | process_bytes() | history.to_json()


def sweep(seed: int, claim: Callable[[int], None]) -> dict[str, Any]:
    """Run single convolutions forward and backward under PyTorch's history."""
    import torch
    from torch.nn import functional

    claim(14 * GIB)
    calls = convolutions(seed)
    history = History()
    failed = {}
    x: Any
    w: Any
    b: Any
    y: Any
    grad: Any
    wanted: Any
    end = time.monotonic() + 45
    for index, call in enumerate(calls):
        if time.monotonic() > end:
            break
        try:
            made = {"device": "cuda:0", "dtype": getattr(torch, call["dtype"])}
            x = torch.zeros(call["x"], **made, requires_grad=call["input_gradient"])
            w = torch.zeros(call["w"], **made, requires_grad=True)
            b = torch.zeros(call["w"][0], **made, requires_grad=True) if call["bias"] else None
            history.mark(f"{index} forward")
            y = functional.conv2d(
                x, w, b, stride=call["stride"], padding=call["padding"], groups=call["groups"]
            )
            grad = torch.zeros_like(y)
            history.mark(f"{index} backward")
            wanted = [t for t in (x, w, b) if t is not None and t.requires_grad]
            torch.autograd.grad(y, wanted, grad)
            torch.cuda.synchronize()
            history.mark(f"{index} end")
        except Exception as exc:  # noqa: BLE001 - one shape that does not run
            failed[index] = f"{type(exc).__name__}: {exc}"[:100]
        x = w = b = y = grad = wanted = None
        if torch.cuda.memory_reserved() > 10 * GIB:
            torch.cuda.empty_cache()
    return {"sweep": calls, "failed": failed} | process_bytes() | history.to_json()


def run_child(job: Any, path: Path, claim: Callable[[int], None]) -> None:
    """Do one job and write its line; never raises."""
    begin = time.monotonic()
    try:
        record = sweep(job, claim) if isinstance(job, int) else train_one(job, claim)
    except BaseException as exc:  # noqa: BLE001 - every fault becomes a line
        name = f"sweep {job}" if isinstance(job, int) else job.to_json()
        text = "".join(traceback.format_exception(exc))[-800:]
        record = {"config": name, "outcome": "error", "error": text}
    record["seconds"] = round(time.monotonic() - begin, 2)
    packed = lzma.compress((json.dumps(record, separators=(",", ":")) + "\n").encode(), preset=6)
    part = path.with_suffix(".part")
    part.write_bytes(packed)
    part.rename(path)


def main() -> int:
    """Run everything within the time limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, default=170.0)
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--memory-gib", type=float, default=125.0, help="what the processes share on the GPU")
    parser.add_argument("--only", default="", help="only styles that contain this text")
    options = parser.parse_args()
    stop_at = time.monotonic() + options.limit_s
    options.out.mkdir(parents=True, exist_ok=True)
    import torch

    torch.set_num_threads(1)
    load_libraries()
    trained = [c for c in configurations() if options.only in c.style]
    sweeps = list(range(SWEEPS)) if not options.only else []
    # A sweep every few models, so that both are there whatever the time allows.
    jobs: list[Any] = []
    for position, config in enumerate(trained):
        if position % 6 == 3 and sweeps:
            jobs.append(sweeps.pop(0))
        jobs.append(config)
    jobs += sweeps
    run_all(jobs, options, stop_at)
    return 0


def load_libraries() -> None:
    """Import once what all children need, but nothing that would keep them from using CUDA."""
    from gpumemnet.learning.dataset.running import warm

    steps = (warm._compiler, warm._torchvision, warm._timm, warm._transformers)
    for step in steps:
        begin = time.monotonic()
        try:
            harmless = warm._harmless(step)
            if harmless:
                step()
        except Exception as exc:  # noqa: BLE001 - the models of the other libraries are still worth running
            harmless = False
            print(f"{step.__name__}: {exc}", flush=True)
        print(
            f"{step.__name__[1:]}: {'loaded' if harmless else 'left out'}, {time.monotonic() - begin:.1f} s"
        )
    for name in ("torch", "torchvision", "timm", "transformers"):
        print(name, getattr(sys.modules.get(name), "__version__", "not loaded"), flush=True)


def run_all(jobs: list[Any], options: argparse.Namespace, stop_at: float) -> None:
    """Keep a number of processes at work and gather what they write."""
    forks = multiprocessing.get_context("fork")
    lock = forks.Lock()
    stated = forks.Array("q", options.slots, lock=False)
    capacity = int(options.memory_gib * GIB)
    parts = options.out / "parts"
    parts.mkdir(exist_ok=True)
    result = options.out / "history.jsonl.xz"
    result.write_bytes(b"")
    running: dict[int, tuple[Any, float, Any, Path]] = {}
    done = failed = 0
    queue = list(enumerate(jobs))

    def child(slot: int, job: Any, path: Path) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)

        def claim(n_bytes: int) -> None:
            n_bytes = min(n_bytes, capacity)
            while True:
                with lock:
                    if sum(stated) + n_bytes <= capacity:
                        stated[slot] = n_bytes
                        return
                time.sleep(0.1)

        run_child(job, path, claim)
        os._exit(0)

    def gather(path: Path, job: Any) -> None:
        nonlocal done, failed
        name = f"sweep {job}" if isinstance(job, int) else f"{job.style} {job.batch_size} {job.precision}"
        if not path.exists():
            failed += 1
            print(f"{name}: no result", flush=True)
            return
        packed = path.read_bytes()
        path.unlink()
        if result.stat().st_size + len(packed) > TOTAL_BYTES:
            print(f"{name}: no memory for {len(packed)} bytes", flush=True)
            return
        with result.open("ab") as out:
            out.write(packed)
        done += 1
        record = json.loads(lzma.decompress(packed))
        error = record.get("error") or record.get("nvml") or ""
        print(f"{name}: {record['seconds']} s, {len(packed)} bytes {error[-300:]}", flush=True)

    while (queue or running) and time.monotonic() < stop_at:
        for slot in range(options.slots):
            if slot not in running and queue:
                number, job = queue.pop(0)
                path = parts / f"{number}.xz"
                process = forks.Process(target=child, args=(slot, job, path), daemon=True)
                process.start()
                running[slot] = (process, time.monotonic(), job, path)
        for slot, (process, since, job, path) in list(running.items()):
            late = time.monotonic() - since > ONE_LIMIT_S + 60 * (stated[slot] == 0)
            if late and process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join(10)
            if not process.is_alive():
                process.join(10)
                stated[slot] = 0
                del running[slot]
                gather(path, job)
        time.sleep(0.05)
    for process, _, job, path in running.values():
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join(10)
        gather(path, job)
    print(
        f"{done} done, {failed} without result, {len(queue)} not begun, {result.stat().st_size} bytes",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())

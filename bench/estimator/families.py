"""Compare the analytical model with traces, for every family of architectures: python bench/estimator/families.py.

One member of each family of torchvision, timm and transformers that the library can build by itself is drawn. Its
torchinfo text (all levels, all columns) is read, and its code is traced for a training step on fake tensors, which is
within 0.5 % of GPUs. Printed are the worst families: what the account saves for backward, and its peak, over the
trace's, less one. Nothing is learned here, and no held-out model is among the members; `--seed` draws others.

Texts and traces are kept under --store (a second or ten each), so that a changed account is judged in a minute.
Needs torchvision, timm and transformers. Models that cannot be built or traced are counted.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing
import os
import random
import re
import signal
import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators import analytic
from gpumemnet.gpu_memory.allocator.events import replay
from gpumemnet.gpus import gpu_named
from gpumemnet.learning.dataset import real_names
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.real_workload import real_workload
from gpumemnet.learning.dataset.store import write_records
from gpumemnet.learning.dataset.summaries import SMALL_BATCH, torchinfo_text, torchsummary_text
from gpumemnet.learning.dataset.workload import make_inputs
from gpumemnet.learning.evaluate.traced import trace_configuration
from gpumemnet.names import Precision
from gpumemnet.profile.build import profile_summary
from gpumemnet.tracing.trace.session import Trace
from gpumemnet.training import TrainingSetup

ALL = {"depth": 99, "col_names": ("input_size", "output_size", "num_params", "kernel_size", "mult_adds")}
PIXELS, TOKENS = 32 * 224 * 224, 16 * 256
"""Of a batch."""
MOST_LAYERS = 4
"""Of published language models: the next ones are the same."""
MOST_PARAMETERS = 1_000_000_000
LAYERS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"),
    *("num_encoder_layers", "num_decoder_layers"),
)
LARGE = re.compile(r"huge|giant|gigant|enormous|so400m|so150m|xxl|_xl|large|_l_|_l$|7b|248m|_b16_448")
TASKS = {
    "MaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "Seq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "CausalLM": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "SequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "ImageClassification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "SemanticSegmentation": "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
}
GPU = gpu_named("h200")
SECONDS = 90
"""For one family."""


class FamilyMember(NamedTuple):
    """One family's member.

    Attributes:
        source: Library.
        name: Of the member.
        arch: As a configuration has it.
        batch: Samples.
        seq_len: Tokens of each; None for images.
    """

    source: str
    name: str
    arch: dict[str, Any]
    batch: int
    seq_len: int | None


class Score(NamedTuple):
    """The account over the trace, less one.

    Attributes:
        name: Library and member.
        saved: Of what is saved for backward.
        peak: Of what the process takes above its base.
    """

    name: str
    saved: float
    peak: float


def torchvision_families(seed: int) -> Iterator[FamilyMember]:
    """Yield one member of each module of torchvision's classification models."""
    import torchvision

    groups: dict[str, list[str]] = defaultdict(list)
    for name in torchvision.models.list_models(module=torchvision.models):
        groups[torchvision.models.get_model_builder(name).__module__].append(name)
    held_out = {name for name, _, _ in real_names.TORCHVISION}
    for group, names in sorted(groups.items()):
        if name := drawn(names, held_out, f"{seed} {group}"):
            yield images("torchvision", name, 224)


def timm_families(seed: int) -> Iterator[FamilyMember]:
    """Yield one member of each module and first word of a name of timm."""
    import timm
    from timm.models import _registry

    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module, names in _registry._module_to_models.items():
        for name in names:
            groups[module, str(re.match("[a-z]+", name)[0])].append(name)  # type: ignore[index]
    held_out = {name for name, _, _ in real_names.TIMM}
    for (module, word), names in sorted(groups.items()):
        if name := drawn(names, held_out, f"{seed} {module} {word}"):
            cfg = timm.get_pretrained_cfg(name, allow_unregistered=True)
            yield images("timm", name, cfg.input_size[-1] if cfg else 224)


def transformers_families(_: int) -> Iterator[FamilyMember]:
    """Yield each type of model of transformers with its own default configuration, of a few layers."""
    from transformers.models.auto import modeling_auto

    seen: set[str] = {name for name, _, _, _ in real_names.TRANSFORMERS}
    for task, mapping in TASKS.items():
        for name in getattr(modeling_auto, mapping):
            if name in seen:
                continue
            seen.add(name)
            if "Image" in task or "Sem" in task:
                yield images("transformers", name, 224, task=task)
            else:
                arch = {"source": "transformers", "name": name, "task": task, "size": 256}
                yield FamilyMember("transformers", name, arch, TOKENS // 256, 256)


FAMILIES = {
    "torchvision": torchvision_families,
    "timm": timm_families,
    "transformers": transformers_families,
}


def drawn(names: list[str], held_out: set[str], seed: str) -> str | None:
    """Draw a name that is neither held out nor large; None if there is none."""
    fit = sorted(name for name in names if name not in held_out and not LARGE.search(name))
    return random.Random(seed).choice(fit) if fit else None


def images(source: str, name: str, size: int, **arch: Any) -> FamilyMember:
    """Return a family that reads images."""
    batch = max(2, PIXELS // size**2)
    return FamilyMember(source, name, {"source": source, "name": name, "size": size, **arch}, batch, None)


def configuration(family: FamilyMember, precision: Precision) -> Configuration:
    """Return the training of a family's member."""
    arch = dict(family.arch)
    if family.source == "transformers":
        import transformers

        config = transformers.AutoConfig.for_model(family.name)
        counts = {key: getattr(config, key, None) for key in LAYERS}
        arch["config"] = {k: MOST_LAYERS for k, n in counts.items() if isinstance(n, int) and n > MOST_LAYERS}
    return Configuration(
        seed=0,
        index=0,
        family="real",
        style=f"{family.source}:{family.name}",
        arch=arch,
        batch_size=family.batch,
        seq_len=family.seq_len,
        precision=precision,
    )


def made(job: tuple[FamilyMember, Precision]) -> dict[str, Any]:
    """Return text and trace of a family's member, or why there is none."""
    family, precision = job
    signal.alarm(SECONDS)
    try:
        config = configuration(family, precision)
        found = {"batch": family.batch, "seq_len": family.seq_len, **texts_of(config)}
        return found | numbers(trace_configuration(config))
    except Exception as exc:  # noqa: BLE001 - any model may fail in any way; the table goes on
        return {"error": f"{type(exc).__name__}: {' '.join(str(exc).split())[:160]}"}
    finally:
        signal.alarm(0)


def texts_of(config: Configuration) -> dict[str, str]:
    """Return torchinfo's text of all levels and, where that can print the model, torchsummary's.

    They are made without values where the model allows.
    """
    work, error = real_workload(config), RuntimeError("no text")
    for name in ("meta", "cpu"):
        device = torch.device(name)
        try:
            with device, torch.no_grad():
                model = work.build()
                if sum(each.numel() for each in model.parameters()) > MOST_PARAMETERS:
                    raise ValueError("too large to be traced here")
                args, kwargs = make_inputs(work, SMALL_BATCH, device, torch.float32)
                texts = {"text": torchinfo_text(model, args, kwargs, device, **ALL)}
                if not kwargs and all(each.is_floating_point() for each in args):
                    with suppress(AttributeError, TypeError):  # of what a module hands on
                        texts["torchsummary"] = torchsummary_text(model, args)
                return texts
        except (RuntimeError, NotImplementedError) as exc:
            error = exc
    raise error


def numbers(trace: Trace) -> dict[str, int]:
    """Return the peak of a trace, and what of its last step's forward pass is there when backward begins."""
    begins = [start for start, phase in trace.phase_starts if phase == "backward"]
    live: dict[int, int] = {}
    for key, n_bytes in trace.events[: begins[-1]]:
        if n_bytes is None:
            live.pop(key, None)
        else:
            live[key] = n_bytes
    saved = sum(n for key, n in live.items() if trace.purpose_of.get(key) == "activations")
    peaks = replay(trace.events)
    return {"saved_bytes": saved, "peak_bytes": peaks.reserved_bytes, "parameters": trace.parameters}


def stored(
    jobs: list[tuple[FamilyMember, Precision]], store: Path, processes: int
) -> dict[str, dict[str, Any]]:
    """Return what is known of each member, by library and name; what is missing is made and kept.

    Args:
        jobs: The members.
        store: Folder.
        processes: That make what is missing; 0 to leave it out.
    """
    store.mkdir(parents=True, exist_ok=True)
    paths = {
        f"{family.source}:{family.name}": store / f"{family.source}-{family.name}-{precision}.json.xz"
        for family, precision in jobs
    }
    missing = [job for job in jobs if not paths[f"{job[0].source}:{job[0].name}"].exists()]
    if not processes:
        paths = {name: path for name, path in paths.items() if path.exists()}
        missing = []
    with multiprocessing.Pool(processes or 1, initializer=begin, maxtasksperchild=20) as pool:
        for (family, _), found in zip(missing, pool.imap(made, missing), strict=True):
            name = f"{family.source}:{family.name}"
            paths[name].write_bytes(lzma.compress(json.dumps(found).encode(), preset=1))
            print(f"{name}: {found.get('error', 'made')}", flush=True)
    return {name: json.loads(lzma.decompress(path.read_bytes())) for name, path in paths.items()}


def packed(store: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each member in a store that could be built and traced, in whatever precision."""
    for path in sorted(store.glob("*.json.xz")):
        found = json.loads(lzma.decompress(path.read_bytes()))
        member, _, precision = path.name.removesuffix(".json.xz").rpartition("-")
        source, _, name = member.partition("-")
        if "error" not in found:
            yield {
                "source": source,
                "name": name,
                "precision": precision,
                "batch_size": found["batch"],
                "seq_len": found["seq_len"],
                "peak_bytes": found["peak_bytes"],
                **{name: found[name] for name in ("text", "torchsummary") if name in found},
            }


def begin() -> None:
    """Prepare a process that builds and traces."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"{SECONDS} s are over")

    os.nice(10)
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, late)


def scored(name: str, found: dict[str, Any], precision: Precision) -> Score:
    """Hold the account of a text against the trace."""
    setup = TrainingSetup(batch_size=found["batch"], seq_len=found["seq_len"], precision=precision)
    profile = profile_summary(found["text"], setup)
    saved = profile.forward_end_bytes - profile.parameter_bytes - profile.optimizer_bytes
    parts = analytic.breakdown(profile, GPU)
    peak = sum(parts.values()) - parts["base"]
    return Score(name, saved / found["saved_bytes"] - 1, peak / found["peak_bytes"] - 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", action="append", choices=FAMILIES, help="only these libraries")
    parser.add_argument("--only", default="", help="only names in which this pattern is found")
    parser.add_argument("--precision", type=Precision, default=Precision.FP32)
    parser.add_argument("--seed", type=int, default=1, help="draws the members")
    parser.add_argument("--store", type=Path, default=Path(".rad/families"))
    parser.add_argument("--processes", type=int, default=1, help="0: only what is in the store")
    parser.add_argument("--worst", type=int, default=40, help="how many families are printed")
    parser.add_argument("--pack", type=Path, help="write all that is in the store as rows that calibrate")
    options = parser.parse_args()
    if options.pack:
        print(f"{write_records(options.pack, packed(options.store))} rows")
        return
    jobs = [
        (family, options.precision)
        for source in options.source or FAMILIES
        for family in FAMILIES[source](options.seed)
        if re.search(options.only, family.name)
    ]
    known = stored(jobs, options.store, options.processes)
    good = {name: found for name, found in known.items() if "error" not in found}
    print(f"{len(good)} of {len(known)} families built and traced")
    scores: list[Score] = []
    for name, found in good.items():
        try:
            scores.append(scored(name, found, options.precision))
        except GpuMemNetError as exc:
            print(f"{name}: {exc}")
    report(scores, options.worst)


def report(scores: list[Score], worst: int) -> None:
    """Print the families whose peak is worst, then the errors by library."""
    for name, saved, peak in sorted(scores, key=lambda score: -abs(score.peak))[:worst]:
        print(f"{name:48} saved {100 * saved:+6.1f} %  peak {100 * peak:+6.1f} %")
    for source in ("", *FAMILIES):
        some = [score for score in scores if score.name.startswith(source)]
        if some:
            errors = [spread(getattr(score, what) for score in some) for what in ("saved", "peak")]
            print(f"{source or 'all':12} {len(some):4}  saved {errors[0]}  peak {errors[1]}")


def spread(errors: Iterator[float]) -> str:
    """Return median, 90th and 95th percentile of errors without their signs."""
    sizes = sorted(map(abs, errors))
    shown = (
        statistics.median(sizes),
        sizes[int(0.9 * (len(sizes) - 1))],
        sizes[int(0.95 * (len(sizes) - 1))],
    )
    return " ".join(f"{100 * value:5.1f} %" for value in shown)


if __name__ == "__main__":
    main()

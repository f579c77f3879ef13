"""The thesis' eighteen unseen real models (Figures 5.11 to 5.13): published results, and RAD's from their summaries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators import rad
from gpumemnet.gpus import Gpu, gpu_named
from gpumemnet.learning.evaluate import peer_data
from gpumemnet.learning.evaluate.peers import CNN_BASE_MIB, MLP_BASE_MIB
from gpumemnet.learning.evaluate.scores import markdown
from gpumemnet.names import Optimizer
from gpumemnet.profile.build import profile_summary
from gpumemnet.training import TrainingSetup
from gpumemnet.units import MIB

SEQ_LEN = 512
"""Sequence length of its transformers, from their summaries' names."""
SUMMARIES = {
    "vgg16": "vgg_32.txt",
    "resnet50": "resnet50_32.txt",
    "mobilenetV2": "mobilenet_128.txt",
    "inception": "inceptionv3_64.txt",
    "BERT_base": "BERT_base_bs-32_sl-512.txt",
    "gpt2_large": "gpt2_large_bs-8_sl-512.txt",
    "xlnet_base": "xlnet_base_cased_bs-8_sl-512.txt",
}
"""Texts by the authors; the other models are built by name and printed."""
GPUS = {"gpt2_large": 2}
"""Number of GPUs according to the traces, for a text printed from a DataParallel model, which splits a batch."""
PUBLISHED = ("GPUMemNet", "FakeTensor", "Horus")


def site() -> Gpu:
    """Return the authors' A100 with the base found in their smallest runs (their CNN and MLP sets)."""
    return gpu_named("a100")._replace(
        conv_base_bytes=int(CNN_BASE_MIB * MIB),
        base_bytes=int(MLP_BASE_MIB * MIB),
        measured=True,
        note="from the authors' smallest runs",
    )


def table(folder: Path) -> str:
    """Score all estimators on the eighteen runs; models without a text here are skipped and named."""
    rows, missing = [], []
    numbers: dict[str, list[float]] = {name: [] for name in ("actual", "estimate", "upper", *PUBLISHED)}
    for run in peer_data.read_real(folder):
        name, batch = run["model"], int(run["batch_size"])
        text = summary_text(name, folder)
        if text is None:
            missing.append(f"{name} {batch}")
            continue
        transformer = name.split("_")[0] in ("BERT", "xlnet", "gpt2")
        setup = TrainingSetup(
            batch_size=batch // GPUS.get(name, 1),
            optimizer=Optimizer.ADAM,
            seq_len=SEQ_LEN if transformer else None,
        )
        answer = rad.estimate(profile_summary(text, setup), site())
        estimate, upper, actual = (
            answer.estimate_bytes / MIB,
            answer.upper_bytes / MIB,
            float(run["Actual GPU memory"]),
        )
        for key, value in (("actual", actual), ("estimate", estimate), ("upper", upper)):
            numbers[key].append(value)
        for key in PUBLISHED:
            numbers[key].append(float("nan") if run[key] == "-" else float(run[key]))
        others = [run[key].split(".")[0] for key in PUBLISHED]
        rows.append([name, str(batch), f"{actual:.0f}", f"{estimate:.0f}", f"{upper:.0f}", *others])
    header = ["model", "batch", "actual MiB", "RAD", "RAD, bound", *PUBLISHED]
    text = markdown(header, rows) + "\n\n" + _summary(numbers)
    return text + (f"\n\nnot here: {', '.join(missing)}" if missing else "")


def _summary(numbers: dict[str, list[float]]) -> str:
    actual = np.array(numbers["actual"])
    rows = []
    for name, key in (("RAD", "estimate"), *((key, key) for key in PUBLISHED)):
        values = np.array(numbers[key])
        known = ~np.isnan(values)
        error = np.abs(values - actual)[known]
        bound = np.array(numbers["upper"]) if key == "estimate" else values
        beyond = int((actual > bound)[known].sum())
        rows.append(
            [
                name,
                str(known.sum()),
                f"{error.mean():.0f}",
                f"{np.median(error):.0f}",
                f"{(bound / actual)[known].mean():.2f}",
                str(beyond),
            ]
        )
    return markdown(
        ["estimator", "runs", "MAE MiB", "median MiB", "booked/actual", "beyond what is booked"], rows
    )


def summary_text(name: str, folder: Path) -> str | None:
    """Return the authors' text, or one made from the model by its public name; None if neither is available.

    Args:
        name: The model's public name.
        folder: The authors' data.
    """
    if name in SUMMARIES:
        path = folder / "summaries" / SUMMARIES[name]
        return path.read_text(encoding="utf-8") if path.exists() else None
    try:
        return _built(name)
    except ImportError:
        return None


def _built(name: str) -> str:
    import torch

    from gpumemnet.learning.dataset.summaries import torchsummary_text

    makers: dict[str, Callable[[], Any]] = {"Xception": _xception, "efficientnet": _efficientnet}
    with torch.device("meta"):
        if name in makers:
            return torchsummary_text(makers[name](), (torch.zeros(2, 3, 224, 224),))
        import transformers

        configs = {
            "BERT_large": ("BertForMaskedLM", transformers.BertConfig(
                vocab_size=28996, hidden_size=16 * 64, num_hidden_layers=24, num_attention_heads=16,
                intermediate_size=4096,
            )),
            "xlnet_large": ("XLNetForSequenceClassification", transformers.XLNetConfig()),
            "gpt2_xl": ("GPT2LMHeadModel", transformers.GPT2Config(n_embd=1600, n_layer=48, n_head=25)),
        }  # fmt: skip
        if name not in configs:
            raise GpuMemNetError(f"{name}: no summary is known")
        class_name, config = configs[name]
        return repr(getattr(transformers, class_name)(config))


def _xception() -> Any:
    import timm

    return timm.create_model("legacy_xception")


def _efficientnet() -> Any:
    import torchvision

    return torchvision.models.efficientnet_b0()

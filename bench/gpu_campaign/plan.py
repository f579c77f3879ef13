"""Draw the trainings to measure, the same on every machine."""

from __future__ import annotations

import random
from typing import Any

from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.real_draw import heldout_configurations, trained_configurations
from gpumemnet.learning.dataset.store import TRAINING_ROWS, Record, read_records
from gpumemnet.units import GIB

SEED = 12
NAMED_SEED = 3000
LARGEST_PEAK_BYTES = 60 * GIB
WANTED = {
    "cnn": 56,
    "staged_cnn": 56,
    "transformer": 72,
    "mlp": 26,
    "recurrent": 16,
    "unet": 22,
    "mixer": 14,
    "recommender": 16,
}
"""Random models by family."""
IMAGE = (
    ("resnet", "torchvision", "resnet50", 224),
    ("vgg", "torchvision", "vgg16", 224),
    ("mobilenet", "torchvision", "mobilenet_v2", 224),
    ("efficientNet", "torchvision", "efficientnet_b0", 224),
    ("Inception", "torchvision", "inception_v3", 299),
    ("Xception", "timm", "legacy_xception", 299),
)
CIFAR = (
    ("resnet18", "resnet18"),
    ("resnet34", "resnet34"),
    ("mobilenet", "mobilenet_v2"),
    ("efficientNet", "efficientnet_b0"),
)
BATCHES = (32, 64, 128)
BERT_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
XLNET_BASE = {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072, "d_head": 64}
GPT2_LARGE = {"n_embd": 1280, "n_layer": 36, "n_head": 20}
TEXT: tuple[tuple[str, str, int, str, dict[str, int] | None], ...] = (
    ("BERT_base", "bert", 32, "MaskedLM", None),
    ("BERT_large", "bert", 8, "MaskedLM", BERT_LARGE),
    ("gpt2_large_2", "gpt2", 4, "CausalLM", GPT2_LARGE),
    ("gpt2_8", "gpt2", 8, "CausalLM", None),
    ("xlnet_base_cased_2", "xlnet", 4, "CausalLM", XLNET_BASE),
    ("xlnet_large_cased_2", "xlnet", 4, "CausalLM", None),
)
TOKENS = 512
DLRM = {
    "tables": 26,
    "rows": 40000,
    "dim": 16,
    "dense": 13,
    "bottom": [512, 256, 64],
    "top": [512, 256],
    "activation": "relu",
}
UNET = {
    "size": 128,
    "channels": 3,
    "classes": 2,
    "base": 64,
    "levels": 4,
    "convs": 2,
    "norm": "batch",
    "activation": "relu_inplace",
    "upsample": "transposed",
}
MNIST = {
    "dims": 2,
    "size": 28,
    "channels": 1,
    "classes": 10,
    "widths": [32, 64],
    "kernel": 3,
    "norm": "none",
    "activation": "relu",
    "dropout": 0.5,
    "downsample": "pool",
    "stem_stride": 1,
    "head": "hidden",
    "hidden": 128,
    "stages": 1,
}
RESIDENTS = [
    "resnet",
    "resnet3",
    "vgg",
    "mobilenet2",
    "efficientNet",
    "Inception2",
    "Xception",
    "BERT_base_amp",
    "BERT_large",
    "gpt2_8",
    "xlnet_base_cased_2",
    "dlrm",
    "UNet_8",
    "mnist_train",
    "resnet18_cifar100_1",
    "resnet34_cifar100_3",
    "mobilenet_cifar100_1",
    "efficientNet_cifar100_2",
    "resnet3_amp",
    "resnet#2",
    "resnet18_cifar100_1#2",
]
"""Trainings that stay in memory while groups of them run; #2 is a second one of the same."""
PLAIN = [
    "resnet",
    "efficientNet",
    "BERT_base_amp",
    "vgg",
    "resnet18_cifar100_1",
    "dlrm",
    "UNet_8",
    "mobilenet2",
]
"""Those that are run without MPS, too."""
SMALL = [
    "resnet18_cifar100_1",
    "resnet34_cifar100_3",
    "mobilenet_cifar100_1",
    "efficientNet_cifar100_2",
    "mnist_train",
    "resnet18_cifar100_1#2",
]


def _real(
    index: int, source: str, name: str, size: int, batch: int, *, task: str | None = None, **more: Any
) -> Record:
    arch: dict[str, Any] = {"source": source, "name": name, "size": size}
    if task is not None:
        arch["task"] = task
    if changes := more.pop("changes", None):
        arch["config"] = changes
    settings: dict[str, Any] = {"optimizer": "sgd-momentum", "seq_len": size if task else None} | more
    return Configuration(
        seed=NAMED_SEED,
        index=index,
        family="real",
        style=f"{source}:{name}",
        arch=arch,
        batch_size=batch,
        **settings,
    ).to_json()


def _made(index: int, family: str, style: str, arch: Record, batch: int, optimizer: Any = "adam") -> Record:
    return Configuration(
        seed=NAMED_SEED,
        index=index,
        family=family,
        style=style,
        arch=arch,
        batch_size=batch,
        optimizer=optimizer,
    ).to_json()


def named() -> dict[str, Record]:
    """Return the trainings that published traces name, and some of them in half precision."""
    found: dict[str, Record] = {}
    index = 0
    for name, source, model, size in IMAGE:
        for ending, batch in zip(("", "2", "3"), BATCHES, strict=True):
            index += 1
            found[name + ending] = _real(index, source, model, size, batch)
    for name, model in CIFAR:
        for number, batch in enumerate(BATCHES, start=1):
            index += 1
            found[f"{name}_cifar100_{number}"] = _real(index, "torchvision", model, 32, batch)
    for name, model, batch, task, changes in TEXT:
        for ending, precision in (("", "fp32"), ("_amp", "amp")):
            index += 1
            how = {"optimizer": "adamw", "precision": precision, "changes": changes}
            found[name + ending] = _real(index, "transformers", model, TOKENS, batch, task=task, **how)
    vision = {"source": "torchvision", "size": 224}
    return found | {
        "dlrm": _made(101, "recommender", "dot", DLRM, 32768, "sgd"),
        "dlrm_2048": _made(102, "recommender", "dot", DLRM, 2048, "sgd"),
        "UNet": _made(103, "unet", "plain", UNET, 32),
        "UNet_8": _made(104, "unet", "plain", UNET, 8),
        "mnist_train": _made(105, "cnn", "pyramid", MNIST, 32),
        "mnist_512": _made(106, "cnn", "pyramid", MNIST, 512),
        "maskrcnn": _real(107, "detection", "maskrcnn_resnet50_fpn", 512, 4),
        "resnet_amp": _real(108, name="resnet50", batch=32, precision="amp", **vision),
        "resnet3_amp": _real(109, name="resnet50", batch=128, precision="amp", **vision),
        "vgg3_amp": _real(110, name="vgg16", batch=128, precision="amp", **vision),
        "efficientNet3_amp": _real(111, name="efficientnet_b0", batch=128, precision="amp", **vision),
        "mobilenet3_bf16": _real(112, name="mobilenet_v2", batch=128, precision="bf16", **vision),
        "vit_64_amp": _real(113, name="vit_b_16", batch=64, optimizer="adamw", precision="amp", **vision),
    }


def _generated(draw: random.Random) -> list[Record]:
    """Draw random models of the dataset, every third with another batch size or precision as well."""
    by_family: dict[str, dict[tuple[int, int], list[Record]]] = {}
    for row in read_records(TRAINING_ROWS):
        if row["outcome"] == "ok" and row["process_peak_bytes"] < LARGEST_PEAK_BYTES:
            by_family.setdefault(row["family"], {}).setdefault((row["seed"], row["index"]), []).append(row)
    found = []
    for family, count in WANTED.items():
        lines = sorted(by_family[family])
        draw.shuffle(lines)
        for k, key in enumerate(lines[:count]):
            row = draw.choice(by_family[family][key])
            config = Configuration.from_json(row).to_json()
            name = f"g{row['seed']}.{row['index']}.{row.get('variant', 0)}"
            found.append(_row(name, "generated", config) | {"known_peak_bytes": row["process_peak_bytes"]})
            if k % 3 == 0:
                other = _another(draw, config)
                name = f"{name}.b{other['batch_size']}.{other['precision']}"
                found.append(_row(name, "generated", other))
    return found


def _another(draw: random.Random, config: Record) -> Record:
    if draw.random() < 0.6 and config["batch_size"] >= 4:
        return config | {"batch_size": max(1, config["batch_size"] // draw.choice((2, 4, 8)))}
    return config | {
        "precision": draw.choice([p for p in ("fp32", "amp", "bf16") if p != config["precision"]])
    }


def _row(name: str, group: str, config: Record) -> Record:
    return {"id": name, "group": group, "config": config}


def make_plan() -> Record:
    """Return the trainings to measure alone, in random order, those to run in groups, and visitors to join them."""
    draw = random.Random(SEED)
    trainings = named()
    generated = _generated(draw)
    heldout = [c for k, c in enumerate(heldout_configurations()) if k % 3 != 2]
    activity = [_row(name, "named", config) for name, config in trainings.items()] + generated
    activity += [_row(f"h{c.index}", "heldout", c.to_json()) for c in heldout]
    activity += [_row(f"t{c.index}", "trained", c.to_json()) for c in trained_configurations(1)]
    order = {row["id"]: draw.random() * (0.5 if row["group"] == "named" else 1.0) for row in activity}
    activity.sort(key=lambda row: order[row["id"]])
    residents = [
        {
            "id": name,
            "config": trainings[name.partition("#")[0]],
            "small": name in SMALL,
            "plain": name in PLAIN,
        }
        for name in RESIDENTS
    ]
    light = [row for row in generated if 0.9e9 < row.get("known_peak_bytes", 0) < 4.0e9]
    draw.shuffle(light)
    visitors: list[Record] = []
    families: dict[str, int] = {}
    for row in light:
        family = row["config"]["family"]
        if families.get(family, 0) < 2 and len(visitors) < 12:
            families[family] = families.get(family, 0) + 1
            visitors.append({"id": row["id"], "config": row["config"]})
    return {"seed": SEED, "activity": activity, "residents": residents, "visitors": visitors}


def dry_plan() -> Record:
    """Return a few small models, for a run without a GPU."""
    small = [row for row in _generated(random.Random(SEED)) if row.get("known_peak_bytes", 2 * GIB) < GIB]
    rows = [row | {"config": row["config"] | {"batch_size": 2}} for row in small[:8]]
    residents = [{"id": row["id"], "config": row["config"], "small": True, "plain": True} for row in rows[:4]]
    return {"seed": SEED, "activity": rows, "residents": residents, "visitors": []}

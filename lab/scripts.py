"""Random job scripts as users write them, right, wrong and odd, to compare the two programs that read them."""

from __future__ import annotations

from random import Random

MODELS = (
    "models/resnet18_torchinfo.txt",
    "models/mlp_torchinfo.txt",
    "models/resnet152_torchinfo.txt",
    "missing.txt",
)
_GPUS = (
    "--gpus=1", "-G1", "-G 1", "--gpus 1", "--gres=gpu:1", "--gres gpu", "--gpus-per-node=1", "--gpus-per-task=1 -n1",
    "--gpus=2", "--gpus-per-node=2", "--gres=shard:4", "--gres=shard:39", "--gres=shard:60", "--gpus=simulated:1",
    "--gres=gpu:simulated:1", "--gpus-per-n 1", "--gpus=1 --cpus-per-gpu=2", "--gpus=1 --mem-per-gpu=100", "",
    "--gpus=1 --gpu-bind=none", "--gpus=1 -n2", "--gpus=1 --ntasks-per-node=2 -N1", "--gpus=1 --gpu-freq=high",
    "--gpus=1 --ntasks-per-gpu=2",
)  # fmt: skip
_OTHERS = (
    "",
    "-J 'a name'",
    '--job-name="x # y"',
    "-t 10 # a comment",
    "-p plain",
    "-p gpu",
    "--parti=plain",
    "-pgpu",
)
_WORDS = {
    "batch_size": ("8", "64", "512", "4096", "0", "many"),
    "optimizer": ("adam", "sgd", "adamm"),
    "precision": ("fp32", "amp", "half"),
    "gradient_checkpointing": ("yes", "no", "perhaps"),
    "memory": ("9G", "60G", "300", "lots"),
    "policy": ("exclusive", "collocate", "share"),
    "retry": ("no", "yes"),
    "gpus": ("1", "2"),
    "confidence": ("0.9", "bound", "1.5"),
    "bach_size": ("8",),
}
_WRONG = frozenset(("0", "many", "adamm", "half", "perhaps", "lots", "share", "1.5"))


def drawn(draw: Random) -> tuple[str, tuple[str, ...]]:
    """Return a job script, and the text typed in front of it."""
    lines = ["#!/bin/bash", *_sbatch_lines(draw), *_rad_lines(draw)]
    if draw.random() < 0.3:
        lines[1:] = draw.sample(lines[1:], len(lines) - 1)
    lines.append("python3 train.py")
    if draw.random() < 0.05:
        lines.append("#RAD memory=4G")
    if draw.random() < 0.1:
        lines.append("#SBATCH --gpus=4")
    typed = draw.choice(
        ((), (), (), ("-p", "plain"), ("--gpus=1",), ("--comment=rad:memory=5G",), ("--comment=mine",))
    )
    return "\n".join([*lines, ""]), typed


def _sbatch_lines(draw: Random) -> list[str]:
    words = [draw.choice(_GPUS), draw.choice(_OTHERS)]
    return [f"#SBATCH {word}" for word in words if word]


def _rad_lines(draw: Random) -> list[str]:
    if draw.random() < 0.1:
        return []
    mistakes = draw.random() < 0.25
    keys = draw.sample(sorted(_WORDS), draw.randint(0, 4))
    words = [f"{key}={draw.choice(_right(key, mistakes))}" for key in keys if mistakes or key != "bach_size"]
    if draw.random() < 0.7:
        words.append(f"model={draw.choice(MODELS if mistakes else MODELS[:3])}")
    if words and draw.random() < 0.3:
        return [f"#RAD {word}" for word in words]
    return [f"#RAD {' '.join(words)}"] if words else []


def _right(key: str, mistakes: bool) -> tuple[str, ...]:
    values = _WORDS[key]
    return values if mistakes else tuple(value for value in values if value not in _WRONG)

"""Draw which real models are measured and how they are trained; the same on every machine. No I/O.

The held-out ones are for evaluation: no estimator is trained or tuned on them, and no training row is a near twin of
one (see splits.py). The others are for training.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpumemnet.learning.dataset import real_names as names
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.draw import Draw
from gpumemnet.names import OPTIMIZERS, PRECISIONS

HELDOUT_SEED, TRAINED_SEED = 2026, 2027
HELDOUT_RUNS = 3
USUAL_PICTURES, USUAL_PICTURES_LARGE, USUAL_TOKENS = 96, 16, 8192
"""Usual batch of the training models, in images or tokens; a twelfth of it up to twice it is drawn."""
LARGE = ("nasnetalarge", "pnasnet5large", "samvit_base_patch16_224")
NO_CHECKPOINTING = (
    "albert",
    "hrnet_w18",
    "ghostnet_100",
    "coat_lite_tiny",
    "twins_svt_small",
    "xception41",
    "dpn68",
    "cait_xxs24_224",
    "poolformer_s12",
)

Entry = dict[str, Any]


def heldout_configurations() -> list[Configuration]:
    """Return the held-out configurations: each model with a few drawn batch sizes, optimizers and precisions."""
    entries: list[Entry] = []
    entries += [{"source": "torchvision", "name": n, "size": s, "most": b} for n, s, b in names.TORCHVISION]
    entries += [{"source": "timm", "name": n, "size": s, "most": b} for n, s, b in names.TIMM]
    entries += [
        {"source": "transformers", "name": n, "task": t, "size": s, "most": b}
        for n, t, s, b in names.TRANSFORMERS
    ]
    found: list[Configuration] = []
    for entry in entries:
        for _ in range(HELDOUT_RUNS):
            can_checkpoint = entry["source"] != "torchvision" and entry["name"] not in NO_CHECKPOINTING
            found.append(_drawn(entry, HELDOUT_SEED, len(found), can_checkpoint))
    return found


def trained_configurations(runs: int) -> Iterator[Configuration]:
    """Yield the configurations for training: every model once, then every model again with other settings.

    Args:
        runs: Number of configurations per model; the first rounds do not depend on it.
    """
    entries = list(_trained_entries())
    for index in range(runs * len(entries)):
        yield _drawn(entries[index % len(entries)], TRAINED_SEED, index, False)


def _trained_entries() -> Iterator[Entry]:
    for name, size in (text.split(":") for text in names.TRAINED_TIMM.split()):
        most = USUAL_PICTURES_LARGE if name in LARGE else USUAL_PICTURES
        yield {"source": "timm", "name": name, "size": int(size), "most": most}
    for name, task, size in (text.split(":") for text in names.TRAINED_TRANSFORMERS.split()):
        most = USUAL_PICTURES if _pictures(task) else USUAL_TOKENS // int(size)
        yield {"source": "transformers", "name": name, "task": task, "size": int(size), "most": most}


def _pictures(task: str) -> bool:
    return "Image" in task or "Sem" in task


def _drawn(entry: Entry, seed: int, index: int, can_checkpoint: bool) -> Configuration:
    d = Draw(seed, index)
    most = entry["most"]
    batch = d.log_integer(max(1, most // 12), most * 2)
    if d.chance(0.7):
        batch = 2 ** (batch.bit_length() - 1)
    return Configuration(
        seed=seed,
        index=index,
        family="real",
        style=f"{entry['source']}:{entry['name']}",
        arch={key: value for key, value in entry.items() if key != "most"},
        batch_size=batch,
        seq_len=entry["size"] if "task" in entry and not _pictures(entry["task"]) else None,
        optimizer=d.choice(OPTIMIZERS),
        precision=d.choice(PRECISIONS),
        gradient_checkpointing=can_checkpoint and d.chance(0.12),
    )

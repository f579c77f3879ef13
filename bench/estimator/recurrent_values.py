"""Measure how many values cuDNN keeps of a recurrent layer: python bench/estimator/recurrent_values.py.

For the measured recurrent runs of gpumemnet/data/train_h200.jsonl.xz whose text is kept, and each kind of layer and
number of directions: the number in gpumemnet/gpu_memory/rules/rules.csv ("cudnn-rnn"), and the median error of the
reserved peak with it and with every other whole number. Needs no GPU. They are few (33), and the best number is not
the table's: the error has other causes, too.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from statistics import median
from typing import Any
from unittest import mock

from gpumemnet.errors import GpuMemNetError
from gpumemnet.gpu_memory.cudnn import rnn_reserve
from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.learning.dataset.store import TRAINING_ROWS, TRAINING_TEXTS, read_records, row_key
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.training import TrainingSetup

TRIED = range(1, 17)
KEYS = ("batch_size", "seq_len", "optimizer", "precision", "gradient_checkpointing")


def runs() -> dict[str, list[tuple[str, TrainingSetup, int]]]:
    """Return text, setup and reserved peak in bytes of the recurrent runs, by the rule that they are about."""
    texts = {row_key(record): record["texts"] for record in read_records(TRAINING_TEXTS)}
    found: dict[str, list[tuple[str, TrainingSetup, int]]] = defaultdict(list)
    for record in read_records(TRAINING_ROWS):
        config: dict[str, Any] = record.get("config", record)
        kept = texts.get(row_key(record))
        if config["family"] != "recurrent" or record["outcome"] != "ok" or not kept:
            continue
        text = kept.get("torchinfo") or next(iter(kept.values()))
        directions = 2 if config["arch"].get("bidirectional") else 1
        setup = TrainingSetup(**{key: config[key] for key in KEYS if config.get(key) is not None})
        found[f"{re.sub(r'[^a-z]', '', config['style'])}_{directions}"].append(
            (text, setup, record["reserved_peak_bytes"])
        )
    return found


def error(value: int, rows: list[tuple[str, TrainingSetup, int]]) -> float:
    """Return the median error of the reserved peak, as a share, if a layer kept so many values."""
    errors = []
    with mock.patch.object(rnn_reserve, "kept_values", lambda kind, directions: value):
        for text, setup, peak in rows:
            with contextlib.suppress(GpuMemNetError):
                errors.append(profile_with_warnings(text + "\n", setup)[0].reserved_bytes / peak - 1)
    return median(map(abs, errors)) if errors else float("nan")


def main() -> None:
    """Print a line for each rule."""
    for rule, rows in sorted(runs().items()):
        shipped = numbers.of("cudnn-rnn").get(rule)
        errors = {value: error(value, rows) for value in TRIED}
        best = min(errors, key=lambda value: errors[value])
        reported = "none" if shipped is None else f"{shipped}, median error {errors[shipped]:.1%}"
        print(
            f"{rule}: {len(rows)} runs; in the table {reported}; the best is {best}, {errors[best]:.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()

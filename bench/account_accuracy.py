"""How near the analytic account comes to measured runs, before anything is learned.

    python bench/account_accuracy.py --rows 300 --text torchinfo_full

For each family: the account over the measurement as 5th, 50th and 95th percentile, for PyTorch's peak of allocated
memory, of reserved memory, and for the whole process as nvidia-smi shows it; then median and 95th percentile of the
whole process' absolute error. Needs the dataset and torch.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Sequence

import torch

from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators import analytic
from gpumemnet.gpus import gpu_named
from gpumemnet.learning.dataset.catalogue import workload
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.store import TRAINING_ROWS, read_records
from gpumemnet.learning.dataset.summaries import torchinfo_text, torchsummary_text
from gpumemnet.learning.dataset.workload import make_inputs
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.training import TrainingSetup

EVERYTHING = {"depth": 12, "col_names": ("input_size", "output_size", "num_params")}
TEXTS = ("torchinfo_full", "torchinfo_default", "torchsummary", "module_repr")


def text_of(config: Configuration, kind: str) -> str:
    """Return one summary text of a configuration."""
    work = workload(config)
    meta = torch.device("meta")
    with meta:
        model = work.build()
    if kind == "module_repr":
        return repr(model)
    args, kwargs = make_inputs(work, config.batch_size, meta, torch.float32)
    with torch.no_grad():
        if kind == "torchsummary":
            return torchsummary_text(model, args)
        options = EVERYTHING if kind == "torchinfo_full" else {}
        return torchinfo_text(model, args, kwargs, meta, **options)


def percentiles(values: Sequence[float], *shares: float) -> str:
    """Return percentiles of the values as text."""
    ordered = sorted(values)
    return " ".join(f"{ordered[min(int(len(ordered) * share), len(ordered) - 1)]:5.2f}" for share in shares)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--text", choices=TEXTS, default="torchinfo_full")
    options = parser.parse_args()
    card = gpu_named("h200")
    found: dict[str, list[tuple[float, float, float]]] = collections.defaultdict(list)
    records = [record for record in read_records(TRAINING_ROWS) if record["outcome"] == "ok"]
    for record in records[:: max(len(records) // options.rows, 1)]:
        config = Configuration.from_json(record)
        setup = TrainingSetup(
            batch_size=config.batch_size,
            seq_len=config.seq_len,
            optimizer=config.optimizer,
            precision=config.precision,
            gradient_checkpointing=config.gradient_checkpointing,
        )
        try:
            profile, _ = profile_with_warnings(text_of(config, options.text) + "\n", setup)
        except (GpuMemNetError, RuntimeError, AttributeError, TypeError):
            continue  # torchsummary cannot show every model
        parts = analytic.breakdown(profile, card)
        cublas = parts["workspace"] + sum(parts[key] for key in parts if key not in ("base", "workspace"))
        extra = cublas - profile.reserved_bytes
        ratios = (
            (profile.allocated_bytes + extra) / record["allocated_peak_bytes"],
            (profile.reserved_bytes + extra) / record["reserved_peak_bytes"],
            sum(parts.values()) / record["process_peak_bytes"],
        )
        for key in (
            "all",
            record["family"],
            f"precision {config.precision}",
            f"optimizer {config.optimizer}",
        ):
            found[key].append(ratios)
    print(f"{'':24} runs   allocated           reserved            process             |error| p50, p95")
    for key, rows in sorted(found.items()):
        columns = [percentiles([row[at] for row in rows], 0.05, 0.5, 0.95) for at in range(3)]
        errors = percentiles([abs(row[2] - 1) for row in rows], 0.5, 0.95)
        print(f"{key:24} {len(rows):4}   {'   '.join(columns)}   {errors}")


if __name__ == "__main__":
    main()

"""`python -m gpumemnet.learning.dataset`: measure configurations on a GPU, make summary texts, pack the results."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import click

DEFAULT_SEED = 1


@click.group()
def main() -> None:
    """Random models, really trained on a GPU and measured."""


@main.command()
@click.option("--seed", default=DEFAULT_SEED, show_default=True, help="Seed of the dataset.")
@click.option("--first", default=0, show_default=True, help="First index.")
@click.option("--count", default=100_000, show_default=True, help="Indices to go through.")
@click.option("--variant", default=0, show_default=True, help="1: batch sizes from a wider spread.")
@click.option("--slots", default=14, show_default=True, help="Processes at once.")
@click.option("--limit-s", default=570.0, show_default=True, help="Seconds after which everything has ended.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON lines, appended to.")
@click.option("--done", type=click.Path(path_type=Path), multiple=True, help="Records not to be made again.")
@click.option("--alone", is_flag=True, help="One at a time, with the activity counters.")
@click.option("--heldout", is_flag=True, help="The held-out real models instead, with their summary texts.")
@click.option("--real", default=0, help="The real models to train on instead, each so many times.")
def measure(
    seed: int,
    first: int,
    count: int,
    variant: int,
    slots: int,
    limit_s: float,
    out: Path,
    done: tuple[Path, ...],
    alone: bool,
    heldout: bool,
    real: int,
) -> None:
    """Train configurations on GPU 0 and append one record each to OUT; started again, it goes on."""
    stop_at_s = time.monotonic() + limit_s
    # Makes PyTorch look for a GPU without CUDA, which a forked child could not use after that.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch

    from gpumemnet.learning.dataset.config import Configuration
    from gpumemnet.learning.dataset.generate import generate
    from gpumemnet.learning.dataset.real_draw import heldout_configurations, trained_configurations
    from gpumemnet.learning.dataset.running.child import MeasurementJob
    from gpumemnet.learning.dataset.running.nvml import Device
    from gpumemnet.learning.dataset.running.runner import Runner
    from gpumemnet.learning.dataset.running.warm import warm_up
    from gpumemnet.learning.dataset.store import appender, done_keys

    known = done_keys((out, *done))
    device = Device()
    left_out = warm_up(heldout or real > 0)
    if left_out:
        click.echo(f"not loaded before the fork, children take longer: {', '.join(left_out)}")

    def jobs() -> Iterator[MeasurementJob]:
        configs: Iterable[Configuration]
        if heldout:
            configs = heldout_configurations()
        elif real:
            configs = trained_configurations(real)
        else:
            configs = (generate(seed, first + i, variant) for i in range(count))
        for config in configs:
            if (config.seed, config.index, config.variant) not in known:
                yield MeasurementJob(
                    config=config,
                    alone=alone,
                    fresh=alone,
                    busy_s=0.5 if alone else 0.0,
                    texts=heldout,
                    build_on_cpu=True if heldout or real else None,
                )

    store = appender(out)
    store(
        device.describe()
        | {
            "session": True,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "libraries": _libraries(),
            "slots": slots,
            "alone": alone,
            "cores": os.cpu_count(),
        }
    )
    counts = Runner(jobs(), device, store, slots=slots, stop_at_s=stop_at_s).run()
    click.echo(f"{sum(counts.values())} records: {dict(counts)}")


def _libraries() -> dict[str, str]:
    """Return the versions of the installed libraries of real models."""
    found = {}
    for name in ("torchvision", "timm", "transformers"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@main.command()
@click.argument("raw", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The .jsonl.xz file to write.")
@click.option(
    "--no-twins-of",
    type=click.Path(exists=True, path_type=Path),
    help="Held-out rows; their near twins are left out.",
)
def pack(raw: tuple[Path, ...], out: Path, no_twins_of: Path | None) -> None:
    """Clean and compress raw records into the file that is kept."""
    from gpumemnet.learning.dataset.pack import pack as packed
    from gpumemnet.learning.dataset.splits import near_twins
    from gpumemnet.learning.dataset.store import read_records, row_key, write_records

    rows = packed(read_records(path) for path in raw)
    heldout = list(read_records(no_twins_of)) if no_twins_of else []
    twins = {row_key(row) for row in near_twins(rows, heldout)}
    count = write_records(out, (row for row in rows if row_key(row) not in twins))
    click.echo(f"{out}: {count} rows, {out.stat().st_size:,} bytes; {len(twins)} near twins left out")


@main.command()
@click.argument("rows", type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The .jsonl.xz file to write.")
@click.option("--workers", default=1, show_default=True, help="Processes at once.")
def texts(rows: Path, out: Path, workers: int) -> None:
    """Make the summary texts of all ROWS again from their configurations; needs no GPU."""
    from multiprocessing import Pool

    from gpumemnet.learning.dataset.store import read_records, write_records
    from gpumemnet.learning.dataset.summaries import text_record

    records = list(read_records(rows))
    with Pool(workers) as pool, click.progressbar(length=len(records)) as bar:

        def made() -> Iterator[dict[str, Any]]:
            for record in pool.imap(text_record, records, chunksize=8):
                bar.update(1)
                yield record

        write_records(out, made())
    click.echo(f"{out}: {out.stat().st_size:,} bytes")


@main.command()
@click.argument("rows", type=click.Path(exists=True, path_type=Path))
@click.argument("others", type=click.Path(exists=True, path_type=Path))
def compare(rows: Path, others: Path) -> None:
    """Say how the memory of ROWS differs from that of the same runs in OTHERS, measured on another GPU."""
    from gpumemnet.learning.dataset.compare import compare as compared
    from gpumemnet.learning.dataset.store import read_records

    try:
        click.echo(compared(read_records(rows), read_records(others)))
    except ValueError as exc:
        raise click.ClickException(f"{rows}, {others}: {exc}") from exc


if __name__ == "__main__":
    main()

"""Measured runs and their profiles, for training and scoring every estimator."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators import analytic, conformal, features
from gpumemnet.gpus import gpu_named
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.store import appender, read_records
from gpumemnet.learning.train.arrays import Floats
from gpumemnet.learning.train.default_depth import cut
from gpumemnet.learning.train.texts_of_rows import setup_of, texts_of
from gpumemnet.names import Precision
from gpumemnet.profile.build import profile_summary
from gpumemnet.profile.record import ModelProfile
from gpumemnet.training import TrainingSetup
from gpumemnet.units import MIB

GPU = gpu_named("h200")
WORKERS = 2
CHUNK = 16
INPUT_GIVEN = ", input given"
"""Suffix of the format of texts without sizes, if the user gave the input shape."""
CUT = ", default depth"
"""Suffix of torchinfo's format, if the text of all levels was cut at the default depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One measured run with one of its summary texts.

    Attributes:
        run: Number that the texts of one run share.
        name: Name of the run, for people.
        group: Architecture family and style; folds keep a group together.
        text_format: "torchinfo", "torchsummary" or "module_repr"; CUT or INPUT_GIVEN may follow.
        profile: Profile of the text.
        peak_mib: Measured peak of the process, as in nvidia-smi.
        text: The text.
        usual: Whether the optimizer processed parameters as by PyTorch's default (foreach; one by one for Adafactor).
        measured: Whether it ran on a GPU; else the peak is from a trace of the model's code.
    """

    run: int
    name: str
    group: str
    text_format: str
    profile: ModelProfile
    peak_mib: float
    usual: bool
    text: str
    measured: bool = True


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a data file, which identifies the training data."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_rows(
    path: Path, texts: Path | None = None, *, stored_only: bool = False, default_depth: bool = False
) -> list[TrainingRow]:
    """Read measured runs and profile their texts, in parallel.

    Args:
        path: A file of `gpumemnet.learning.dataset`. Failed runs, and texts that cannot be profiled, are skipped; an
            out-of-memory run has no peak.
        texts: Storage of texts made from configurations; making one takes a quarter of a second.
        stored_only: Skip runs without stored texts.
        default_depth: Also cut torchinfo's complete texts of real models there, as separate rows.

    Returns:
        One row per run and usable text.
    """
    records = [record for record in read_records(path) if record.get("outcome") == "ok"]
    if stored_only and texts is not None and texts.exists():
        stored = {_text_key(each["config"]) for each in read_records(texts)}
        records = [record for record in records if "texts" in record or _text_key(record) in stored]
    _add_texts(records, texts)
    for record in records:
        if default_depth and record["family"] == "real":  # real models are what users run, so they calibrate
            record["texts"] = _with_cut(record["texts"])
    with ProcessPoolExecutor(WORKERS) as pool:
        found = list(pool.map(profiles_of, records, chunksize=CHUNK))
    return [
        TrainingRow(
            run=run,
            name=_name(record),
            group=f"{record['family']}/{record['style']}",
            text_format=text_format,
            profile=profile,
            peak_mib=record["process_peak_bytes"] / MIB,
            usual=_usual(record),
            text=record["texts"][text_format.removesuffix(INPUT_GIVEN)],
        )
        for run, (record, profiles) in enumerate(zip(records, found, strict=True))
        for text_format, profile in profiles.items()
    ]


def traced_rows(path: Path, *, first_run: int) -> list[TrainingRow]:
    """Read families that were traced on fake tensors and not measured; they are used for calibration, not training.

    Args:
        path: Output of bench/estimator/families.py.
        first_run: Number of the first one.

    Returns:
        One row for each text that can be profiled, trained with Adam: torchinfo's in full and cut at the default
            depth, and torchsummary's if it can print the model.
    """
    traced = [(run, record) for run, record in enumerate(read_records(path), start=first_run)]
    records_of_runs = [(run, {**record, "format": "torchinfo"}) for run, record in traced]
    records_of_runs += [
        (run, {**record, "text": less}) for run, record in records_of_runs if (less := cut(record["text"]))
    ]
    records_of_runs += [
        (run, {**record, "format": "torchsummary", "text": record["torchsummary"]})
        for run, record in traced
        if "torchsummary" in record
    ]
    records = [record for _, record in records_of_runs]
    with ProcessPoolExecutor(WORKERS) as pool:
        found = list(pool.map(_traced_profile, records, chunksize=CHUNK))
    rows = []
    for (run, record), profile in zip(records_of_runs, found, strict=True):
        if profile is None or conformal.kind(profile).endswith("_untold"):
            continue  # what a text does not show must not calibrate others
        base = analytic.breakdown(profile, GPU)["base"]
        rows.append(
            TrainingRow(
                run=run,
                name=record["name"],
                group=f"real/{record['source']}:{record['name']}",
                text_format=f"{record['format']}, traced",
                profile=profile,
                peak_mib=(base + record["peak_bytes"]) / MIB,
                usual=True,
                text=record["text"],
                measured=False,
            )
        )
    return rows


def _traced_profile(record: dict[str, Any]) -> ModelProfile | None:
    setup = TrainingSetup(
        batch_size=record["batch_size"],
        seq_len=record["seq_len"],
        precision=Precision(record["precision"]),
    )
    try:
        return profile_summary(record["text"], setup)
    except GpuMemNetError:
        return None


def _with_cut(texts: dict[str, str]) -> dict[str, str]:
    """Return the texts of a run, plus torchinfo's at the default depth if there is a deeper one."""
    less = cut(texts["torchinfo"]) if "torchinfo" in texts else None
    return texts if less is None else {**texts, f"torchinfo{CUT}": less}


def _add_texts(records: list[dict[str, Any]], store: Path | None) -> None:
    """Add texts to every record: its own, those in the store, or new ones, which are then stored."""
    known = {}
    if store is not None and store.exists():
        known = {_text_key(each["config"]): each["texts"] for each in read_records(store)}
    keys = [_text_key(record) for record in records]
    missing = [
        (record, key)
        for record, key in zip(records, keys, strict=True)
        if "texts" not in record and key not in known
    ]
    with ProcessPoolExecutor(WORKERS) as pool:
        for (record, key), found in zip(
            missing, pool.map(texts_of, [record for record, _ in missing], chunksize=CHUNK), strict=True
        ):
            known[key] = record["texts"] = found
            if store is not None:
                appender(store)({"config": Configuration.from_json(record).to_json(), "texts": found})
    for record, key in zip(records, keys, strict=True):
        record.setdefault("texts", known.get(key))


def _usual(record: dict[str, Any]) -> bool:
    how, optimizer = record["implementation"], record["optimizer"]
    if optimizer.startswith("sgd"):
        return True  # its steps need no workspace with any implementation
    return bool(how in ("default", "forloop" if optimizer == "adafactor" else "foreach"))


def _text_key(record: dict[str, Any]) -> str:
    """Return the key of what a text depends on; not the batch size, by which a profile is scaled."""
    return json.dumps(
        [record[name] for name in ("family", "style", "arch", "seq_len", "index")], sort_keys=True
    )


def profiles_of(record: dict[str, Any]) -> dict[str, ModelProfile]:
    """Return the profiles of a record's texts, by format; texts that cannot be profiled are skipped."""
    setup = setup_of(record)
    found = {}
    for text_format, text in record["texts"].items():
        try:
            found[text_format] = profile_summary(text, setup)
        except GpuMemNetError:
            continue
    shape = _input_shape(record)
    if shape is not None and "module_repr" in found:
        with suppress(GpuMemNetError):
            sized = replace(setup, input_shape=shape)
            found[f"module_repr{INPUT_GIVEN}"] = profile_summary(record["texts"]["module_repr"], sized)
    return found


def _input_shape(record: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the shape of a batch of images or signals, as a user would add it to `print(model)`."""
    if record["seq_len"] is not None:
        return None
    if record["family"] == "real":
        size = record["arch"]["size"]
        return (record["batch_size"], 3, size, size)
    from gpumemnet.learning.dataset.catalogue import workload

    inputs = workload(Configuration.from_json(record)).inputs
    first = inputs[0] if isinstance(inputs, tuple) else next(iter(inputs.values()))
    return (record["batch_size"], *first.shape) if first.kind == "float" and len(first.shape) > 1 else None


def _name(record: dict[str, Any]) -> str:
    return f"{record['arch'].get('name', record['style'])}-{record['index']}-{record.get('variant', 0)}"


def matrix(rows: Iterable[TrainingRow]) -> Floats:
    """Return the features of all rows, in the order of `features.NAMES`."""
    return np.array([features.vector(row.profile) for row in rows], float)


def lineage(group: str) -> str:
    """Return the common name of related models: a real model's name up to its first number or sign, or the group.

    Args:
        group: Group as in `TrainingRow`, e.g. "real/timm:fastvit_t12", which is of the lineage "real/fastvit".
    """
    match = re.match(r"real/[^:]*:([a-zA-Z]+)", group)
    return f"real/{match.group(1).lower()}" if match else group


def folds(groups: list[str], count: int = 10) -> Iterator[NDArray[np.bool_]]:
    """Yield boolean masks of held-out rows; no group is in two masks, and masks are about equally large.

    Args:
        groups: Group of each row.
        count: Number of masks.
    """
    sizes = [0] * count
    place: dict[str, int] = {}
    for group in sorted(set(groups), key=lambda name: (-groups.count(name), name)):
        place[group] = int(np.argmin(sizes))
        sizes[place[group]] += groups.count(group)
    where = np.array([place[group] for group in groups])
    for number in range(count):
        yield where == number

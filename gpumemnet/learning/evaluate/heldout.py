"""Evaluate every estimator on real models without training rows: gpumemnet/data/heldout_h200.jsonl.xz."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpumemnet.errors import ModelFileError
from gpumemnet.estimate import Estimate
from gpumemnet.estimators import transformer
from gpumemnet.estimators.registry import ESTIMATORS
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.store import read_records
from gpumemnet.learning.evaluate.scores import Scores, score
from gpumemnet.learning.train.rows import GPU, INPUT_GIVEN, TrainingRow
from gpumemnet.names import SOURCES, Precision
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.units import MIB

MAIN_FORMAT = "torchinfo"
"""Format for evaluating the estimators that need a summary: it can show every kind of model."""
BOUNDED = ("rad", "boosted")
"""Estimators with a bound; the others only give an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """One estimator's answers for some rows, in MiB.

    Attributes:
        estimator: Its name, and the common property of the rows.
        rows: The runs.
        estimate_mib: Best guess of each.
        upper_mib: Bound of each.
        answers: Full estimates, from estimators of profiles.
    """

    estimator: str
    rows: list[TrainingRow]
    estimate_mib: list[float]
    upper_mib: list[float]
    answers: list[Estimate] = field(default_factory=list)

    def scores(self) -> Scores:
        """Score the answers; only estimators with a bound are scored on one."""
        upper = self.upper_mib if self.estimator.split(",")[0] in BOUNDED else None
        return score([row.peak_mib for row in self.rows], self.estimate_mib, upper)


def all_answers(rows: list[TrainingRow], path: Path, *, others: bool = True) -> list[Answers]:
    """Run every estimator.

    Args:
        rows: Held-out rows of all formats.
        path: Their file: FakeTensor needs the models.
        others: Whether to run the other estimators, which takes much longer.

    Returns:
        RAD's estimator by format of summary first, then the others on MAIN_FORMAT.
    """
    found = [
        ask("rad", [row for row in rows if row.text_format == name], ESTIMATORS["rad"], note=f", {name}")
        for name in (*SOURCES, f"module_repr{INPUT_GIVEN}")
        if any(row.text_format == name for row in rows)
    ]
    main = [row for row in rows if row.text_format == MAIN_FORMAT]
    for shown, note in ((True, "all levels shown"), (False, "levels hidden")):
        chosen = [row for row in main if (not row.profile.hidden_bytes) == shown]
        found.append(ask("rad", chosen, ESTIMATORS["rad"], note=f", {MAIN_FORMAT}, {note}"))
    if not others:
        return [answers for answers in found if answers.rows]
    for name in ESTIMATORS:
        if name != "rad":
            found.append(ask(name, main, ESTIMATORS[name]))
    found.append(ask_layers(main))
    fake = fake_tensor(path)
    if fake:
        chosen = [row for row in main if row.run in fake]
        numbers = [fake[row.run] for row in chosen]
        found.append(Answers(estimator="faketensor", rows=chosen, estimate_mib=numbers, upper_mib=numbers))
    return [answers for answers in found if answers.rows]


def ask(name: str, rows: list[TrainingRow], estimator: Callable[..., Estimate], note: str = "") -> Answers:
    """Run one estimator on every row; return no rows if its weights are missing.

    Args:
        name: Name of the estimator, for the tables.
        rows: Held-out runs with their profiles.
        estimator: Takes a profile and a GPU's name.
        note: Suffix of the name.
    """
    try:
        answers = [estimator(row.profile, GPU) for row in rows]
    except ModelFileError:
        rows, answers = [], []
    return Answers(
        estimator=name + note,
        rows=rows,
        estimate_mib=[answer.estimate_bytes / MIB for answer in answers],
        upper_mib=[answer.upper_bytes / MIB for answer in answers],
        answers=answers,
    )


def ask_layers(rows: list[TrainingRow]) -> Answers:
    """Run the Transformer classifier, which reads the layers."""
    try:
        answers = [
            transformer.estimate_layers(parse_text(row.text, path=row.name), row.profile, GPU) for row in rows
        ]
    except ModelFileError:
        rows, answers = [], []
    numbers = [answer.estimate_bytes / MIB for answer in answers]
    return Answers(estimator=transformer.NAME, rows=rows, estimate_mib=numbers, upper_mib=numbers)


def fake_tensor(path: Path) -> dict[int, float]:
    """Trace the held-out models with FakeTensor; empty if torchvision, timm or transformers is missing.

    Returns:
        MiB by run number.
    """
    import torch

    from gpumemnet.estimators.faketensor import peak_bytes
    from gpumemnet.learning.dataset.catalogue import workload
    from gpumemnet.learning.dataset.workload import loss_of, make_inputs, make_tensor

    found = {}
    records = [record for record in read_records(path) if record.get("outcome") == "ok"]
    for run, record in enumerate(records):
        config = Configuration.from_json(record)
        dtype = torch.bfloat16 if config.precision is Precision.BF16 else torch.float32
        try:
            work = workload(config)
            args, kwargs = make_inputs(work, config.batch_size, "meta", dtype)
            target = (
                None if work.target is None else make_tensor(work.target, config.batch_size, "meta", dtype)
            )
            found[run] = (
                peak_bytes(
                    lambda work=work, dtype=dtype: work.build().to(dtype),  # type: ignore[misc]
                    lambda model, work=work, args=args, kwargs=kwargs, target=target: loss_of(  # type: ignore[misc]
                        work, model(*args, **kwargs), target
                    ),
                )
                / MIB
            )
        except (ImportError, NotImplementedError, RuntimeError):
            continue  # a library is missing, or an operation has no fake implementation
    return found

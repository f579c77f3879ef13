"""Read the question: a summary or a job script, and the options."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import NamedTuple

from gpumemnet.cli.cluster import HypotheticalJob
from gpumemnet.cli.job_script import is_job_script, why_refused
from gpumemnet.directives.meant import no_summary
from gpumemnet.directives.parse import Directives, parse_comment, parse_script
from gpumemnet.errors import DirectiveError, SetupError
from gpumemnet.records import replace
from gpumemnet.summaries.texts.files import MAX_BYTES, read_bytes, text_of
from gpumemnet.training import TrainingSetup
from gpumemnet.units import to_mib_up

STDIN = "-"


class Question(NamedTuple):
    """Question of the user.

    Attributes:
        directives: Directives of job script and options together; its model is a path, or a summary's text.
        job: The job to submit; None if a module or a training script is traced.
        fault: Error in the #RAD lines; None if none.
    """

    directives: Directives
    job: HypotheticalJob | None = None
    fault: DirectiveError | None = None


def question_of(summary: str | None, given: Mapping[str, object], typed: str) -> Question:
    """Return the question.

    Args:
        summary: A summary, a saved profile or a job script; "-" for standard input; None for none.
        given: Training settings of the command line; they override the job script's.
        typed: Options to pass to sbatch.

    Raises:
        SummaryError: The file cannot be read.
        SetupError: It is a job script without RAD directives, or `typed` has an open quote.
    """
    try:
        words = tuple(shlex.split(typed))
    except ValueError as exc:
        raise SetupError(f"--options: {str(exc).lower()}; close the quote") from exc
    if summary is None:
        return Question(directives=_with(Directives(setup=TrainingSetup()), given))
    other = no_summary(summary)
    if other is not None and not summary.endswith(".py"):
        raise SetupError(f"{summary}: {other}")
    name = "standard input" if summary == STDIN else summary
    data = _standard_input() if summary == STDIN else read_bytes(summary)
    text = data.decode("utf-8", errors="replace")
    if b"\0" not in data or not is_job_script(text):
        text = text_of(data, name)
    if not is_job_script(text) or (
        other is not None and not any(mark in text for mark in ("#RAD", "#SBATCH"))
    ):
        if other is not None:  # a job script may be in Python
            raise SetupError(f"{summary}: {other}")
        return _of_summary(text if summary == STDIN else summary, given, words)
    if problem := why_refused(data, None if summary == STDIN else summary):
        raise SetupError(f"{name}: {problem}")
    job = HypotheticalJob(typed=words, script=text, path=None if summary == STDIN else summary)
    try:
        comment = next((word for word in reversed(words) if word.startswith("--comment=")), "")
        directives = parse_comment(comment.partition("=")[2]) or parse_script(text, name)
    except DirectiveError as exc:
        return Question(directives=Directives(setup=TrainingSetup()), job=job, fault=exc)
    directives = _in_its_folder(directives or Directives(setup=TrainingSetup()), summary)
    if not given:
        return Question(directives=directives, job=job)
    directives = _with(directives, given)
    return Question(directives=directives, job=job._replace(typed=(*words, _comment_of(directives))))


def directive_words(directives: Directives) -> list[str]:
    """Return directives as key=value words, without defaults."""
    setup, default = directives.setup, TrainingSetup()
    words = [f"model={directives.model}"] if directives.model else []
    words += [
        f"{key}={getattr(setup, key)}"
        for key in ("batch_size", "seq_len", "optimizer", "precision")
        if getattr(setup, key) != getattr(default, key)
    ]
    words += [] if directives.memory_bytes is None else [f"memory={to_mib_up(directives.memory_bytes)}M"]
    words += [
        f"{key}={value}"
        for key, value in (
            ("gpus", directives.gpus),
            ("policy", directives.policy),
            ("confidence", directives.confidence),
        )
        if value is not None
    ]
    words += [] if directives.retry else ["retry=no"]
    return words + (["gradient_checkpointing=yes"] if setup.gradient_checkpointing else [])


def comment_words(directives: Directives) -> str:
    """Return directives as the text of a job's comment."""
    words = directive_words(directives)
    return "rad:" + ",".join(f"'{word}'" if "," in word or " " in word else word for word in words)


def _comment_of(directives: Directives) -> str:
    return f"--comment={comment_words(directives)}"


def _of_summary(model: str, given: Mapping[str, object], words: tuple[str, ...]) -> Question:
    """Return the question for a summary alone: a job for one GPU that names it."""
    directives = _with(Directives(setup=TrainingSetup(), model=model), given)
    if "\n" in model:  # a text, which no job can name
        return Question(directives=directives)
    return Question(
        directives=directives, job=HypotheticalJob(typed=("--gpus=1", *words, _comment_of(directives)))
    )


def _with(directives: Directives, given: Mapping[str, object]) -> Directives:
    """Override directives by options of the same name."""
    settings = {key: value for key, value in given.items() if key != "confidence"}
    setup = replace(directives.setup, **settings, stated=directives.setup.stated | set(settings))  # type: ignore[arg-type]
    confidence = given.get("confidence", directives.confidence)
    return directives._replace(setup=setup, confidence=confidence)  # type: ignore[arg-type]


def _standard_input() -> bytes:
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise SetupError("standard input: too large for a model summary; save only the printed summary")
    if not data.strip():
        raise SetupError("standard input is empty; pipe a model summary into it")
    return data


def _in_its_folder(directives: Directives, summary: str) -> Directives:
    """Return directives with the model's path as sbatch finds it: from here, or next to the job script."""
    if directives.model is None or summary == STDIN:
        return directives
    named = os.path.expanduser(directives.model)
    nearby = os.path.join(os.path.dirname(summary), named)
    here = os.path.exists(named) or not os.path.exists(nearby)  # neither raises without permission
    return directives._replace(model=named if here else nearby)

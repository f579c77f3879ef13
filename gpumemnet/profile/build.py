"""Build a profile from a summary: read the layers, build the tape, replay it, sum up the results."""

from __future__ import annotations

from collections import Counter

from gpumemnet.errors import SetupError, SummaryError
from gpumemnet.names import Family, Group, Source
from gpumemnet.profile import sums
from gpumemnet.profile.record import ModelProfile
from gpumemnet.records import replace
from gpumemnet.summaries.graph.build import build
from gpumemnet.summaries.graph.tape import Tape
from gpumemnet.summaries.graph.unknown import FULL_DEPTH
from gpumemnet.summaries.replay.optimizer_memory import OPTIMIZER_MEMORY
from gpumemnet.summaries.replay.training_step import replay
from gpumemnet.summaries.texts.read import is_profile, rows_of, text_of
from gpumemnet.summaries.texts.records import ModelSummary
from gpumemnet.summaries.texts.settle import settle
from gpumemnet.training import TrainingSetup

MAX_STEP_BYTES = 1 << 44
"""All tensors of a step together, 16 TiB: a hundred times any GPU's memory; more comes from broken numbers."""


def profile_summary(path_or_text: str, setup: TrainingSetup) -> ModelProfile:
    """Profile a model summary; arguments and errors as for `profile_with_warnings`."""
    return profile_with_warnings(path_or_text, setup)[0]


def profile_with_warnings(path_or_text: str, setup: TrainingSetup) -> tuple[ModelProfile, tuple[str, ...]]:
    """Profile a model summary, or read a saved profile, with warnings about guesses.

    Args:
        path_or_text: A file's path, or the text (recognized by a line break).
        setup: The training setup.

    Returns:
        The profile, and one sentence for each guess.

    Raises:
        SummaryError: The file or the text is unusable.
        SetupError: The setup is impossible for this model.
    """
    text, path = text_of(path_or_text)
    if is_profile(text):
        from gpumemnet.tracing.saved.choose import choose  # only a saved profile needs it
        from gpumemnet.tracing.saved.record import SavedProfile

        return choose(SavedProfile.from_text(text, path=path), setup, path=path)
    return build_profile(rows_of(text, setup, path=path), setup, path=path)


def build_profile(
    summary: ModelSummary, setup: TrainingSetup, *, path: str
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Profile a parsed summary.

    Args:
        summary: The parsed text.
        setup: The training setup.
        path: File, for messages.

    Returns:
        The profile and the warnings.

    Raises:
        SetupError: The batch size is open.
        SummaryError: The numbers in the text cannot be those of a model.
    """
    if not setup.batch_size and not summary.batch_size and setup.input_shape:
        setup = replace(setup, batch_size=setup.input_shape[0])
    batch_size, layers, tape, warnings = taped(summary, setup, path=path)
    if batch_size == 1 and setup.batch_size is None:  # usual in a summary, and rare in training
        warnings = (*warnings, "batch size 1, as in the summary; add batch_size=N if training takes another")
    result = replay(tape, OPTIMIZER_MEMORY[setup.optimizer], checkpointing=setup.gradient_checkpointing)
    counts = sums.count_groups(layers, tape)
    shown = any(layer.output_shapes for layer in summary.layers)
    assumed = setup.input_shape is None and not shown
    profile = ModelProfile(
        family=family_of(counts),
        source=summary.format if shown else Source.MODULE_REPR,  # a table without shapes has the same errors
        optimizer=setup.optimizer,
        precision=setup.precision,
        gradient_checkpointing=int(setup.gradient_checkpointing),
        gpus=setup.gpus,
        batch_size=batch_size,
        seq_len=setup.seq_len or 0,
        assumed=int(assumed and counts[Group.CONV] > 0),
        **sums.weights(layers, tape, setup.precision),
        **sums.activations(tape),
        **sums.largest(tape),
        **sums.peaks(result),
        **sums.counts(layers, tape, counts),
    )
    return profile, warnings


def taped(
    summary: ModelSummary, setup: TrainingSetup, *, path: str
) -> tuple[int, ModelSummary, Tape, tuple[str, ...]]:
    """Return the batch size, the layers with shapes, their tape, and warnings about guesses.

    Args:
        summary: The layers.
        setup: The training setup.
        path: File, for messages.

    Raises:
        SetupError: The batch size is open.
        SummaryError: The numbers in the text cannot be those of a model.
    """
    batch_size = setup.batch_size or summary.batch_size
    if not batch_size:
        raise SetupError(f"{path}: the summary leaves the batch size open; add batch_size=N (--batch-size N)")
    layers = with_shapes(summary, setup)
    tape, warnings = build(layers, setup)
    if not tape.ops:
        raise SummaryError(
            path=path, problem="it shows no layer that runs", fix=f"save the text of {FULL_DEPTH}"
        )
    if not 0 < sum(tape.sizes) + sum(tape.parameters) < MAX_STEP_BYTES:
        raise SummaryError(path=path, problem="no model is of that size", fix="check shapes and batch size")
    return batch_size, layers, tape, warnings


def with_shapes(summary: ModelSummary, setup: TrainingSetup) -> ModelSummary:
    """Infer shapes if the text shows none, and determine which layers run, are shared or are frozen.

    Args:
        summary: The parsed text.
        setup: The training setup; supplies what the text leaves open.

    Raises:
        SetupError: The text shows no shapes and the batch size is open.
    """
    if not any(layer.output_shapes for layer in summary.layers):
        from gpumemnet.summaries.shapes.infer import infer  # only `print(model)` needs it

        summary = infer(summary, setup)
    return settle(summary)


def family_of(counts: Counter[str]) -> Family:
    """Return the kind of network from its number of layers of each group."""
    if counts[Group.CONV] and counts[Group.CONV] * 2 >= counts[Group.LINEAR] - counts[Group.CONV]:
        return Family.CNN if not counts[Group.ATTENTION] else Family.TRANSFORMER
    if counts[Group.ATTENTION] or (counts[Group.LAYERNORM] and counts[Group.LINEAR]):
        return Family.TRANSFORMER
    if counts[Group.RNN] or counts[Group.EMBEDDING]:
        return Family.OTHER
    return Family.MLP if counts[Group.LINEAR] else Family.OTHER

"""From a summary to a profile: wire it, replay it, count what matters."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gpumemnet import reading, sums
from gpumemnet.errors import SetupError, SummaryError
from gpumemnet.idle import without_idle
from gpumemnet.optimizers import OPTIMIZER_MEMORY
from gpumemnet.parse.detect import parse_text
from gpumemnet.parse.text import RECREATE
from gpumemnet.profile import Family, ModelProfile
from gpumemnet.replay import replay
from gpumemnet.summary import ModelSummary
from gpumemnet.tied import count_once
from gpumemnet.training import TrainingSetup
from gpumemnet.wiring import wire

MAX_STEP_BYTES = 1 << 44
"""All tensors of a step together, 16 TiB: a hundred times what any GPU holds; more comes from broken numbers."""


def profile_with_warnings(path_or_text: str, setup: TrainingSetup) -> tuple[ModelProfile, tuple[str, ...]]:
    """Profile a summary and say what had to be guessed; arguments and errors as `profile.profile_summary`."""
    summary, path = read(path_or_text)
    return account(summary, setup, path=path)


def read(path_or_text: str) -> tuple[ModelSummary, str]:
    """Parse a summary; return it and what to call it in messages. Errors as `profile.profile_summary`."""
    if "\n" in path_or_text:
        path, source = "summary", path_or_text
    else:
        path, source = path_or_text, reading.read_text(path_or_text)
    return parse_text(source, path=path), path


def account(
    summary: ModelSummary, setup: TrainingSetup, *, path: str
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Take the account of a parsed summary.

    Args:
        summary: The parsed text.
        setup: How it is trained.
        path: File, for messages.

    Returns:
        The profile and the warnings.

    Raises:
        SetupError: The batch size is open.
        SummaryError: The numbers in the text cannot be those of a model.
    """
    batch = setup.batch_size or summary.batch_size
    if not batch:
        raise SetupError(f"{path}: the summary leaves the batch size open; add batch_size=N")
    assumed = setup.input_shape is None and not any(layer.output_shapes for layer in summary.layers)
    summary = concrete(summary, setup)
    tape, warnings = wire(summary, setup)
    if not tape.ops:
        raise SummaryError(path=path, problem="it shows no layer that runs", fix=RECREATE)
    if not 0 < sum(tape.sizes) + sum(tape.parameters) < MAX_STEP_BYTES:
        raise SummaryError(path=path, problem="no model is of that size", fix="check shapes and batch size")
    optimizer = OPTIMIZER_MEMORY[setup.optimizer]
    result = replay(tape, optimizer, checkpointing=setup.gradient_checkpointing)
    counts = sums.count_groups(summary)
    made = Counter([op.group for op in tape.ops])
    counts["attention"] = made["attention"]
    saved = sums.saved(tape)
    gradient_bytes = sum(tape.parameters)
    profile = ModelProfile(
        family=family_of(counts),
        source=summary.format,
        optimizer=setup.optimizer,
        precision=setup.precision,
        gradient_checkpointing=int(setup.gradient_checkpointing),
        gpus=setup.gpus,
        batch_size=batch,
        seq_len=setup.seq_len or 0,
        parameters=gradient_bytes // (2 if setup.precision == "bf16" else 4),
        parameter_bytes=gradient_bytes + sum(tape.frozen),
        gradient_bytes=gradient_bytes,
        optimizer_bytes=optimizer.state_bytes(tape.parameters),
        step_bytes=optimizer.step_bytes(tape.parameters),
        cast_bytes=tape.cast_bytes,
        input_bytes=sum(tape.sizes[number] for number in tape.constants),
        output_bytes=tape.sizes[tape.ops[-1].output],
        output_sum_bytes=sum(tape.sizes[op.output] for op in tape.ops),
        saved_bytes=sum(saved.values()),
        saved_conv_bytes=saved["conv"],
        saved_linear_bytes=saved["linear"],
        saved_norm_bytes=saved["batchnorm"] + saved["layernorm"],
        saved_activation_bytes=saved["activation"],
        saved_attention_bytes=saved["attention"],
        saved_mask_bytes=saved["mask"],
        score_bytes=tape.score_bytes,
        doubt_bytes=tape.doubt_bytes,
        hidden_bytes=tape.hidden_bytes,
        hidden_factor=tape.hidden_percent,
        borrowed_bytes=max(
            (max(op.data_workspace_bytes, op.weight_workspace_bytes) for op in tape.ops), default=0
        ),
        fourier_bytes=tape.fourier_bytes,
        loose_bytes=sums.loose(summary) * (2 if setup.precision == "bf16" else 4),
        largest_bytes=max(tape.sizes),
        largest_conv_bytes=sums.largest_pair(tape, "conv"),
        largest_linear_bytes=sums.largest_pair(tape, "linear"),
        largest_weight_bytes=max(tape.parameters, default=0),
        forward_end_bytes=result.forward_end_bytes,
        allocated_bytes=result.allocated_peak_bytes,
        reserved_bytes=result.reserved_bytes,
        tensors=len(tape.sizes),
        weights=len(tape.parameters),
        convs=counts["conv"],
        grouped_convs=tape.grouped,
        linears=counts["linear"],
        norms=counts["batchnorm"] + counts["layernorm"],
        activations=counts["activation"],
        attentions=counts["attention"],
        embeddings=counts["embedding"],
        recurrents=counts["rnn"],
        guessed=tape.guessed + made["function"],
        idle=sum(layer.kind == "identity" for layer in summary.layers),
        assumed=int(assumed and counts["conv"] > 0),
        unknown=counts["unknown"],
    )
    return profile, warnings


def concrete(summary: ModelSummary, setup: TrainingSetup) -> ModelSummary:
    """Give the layers shapes if the text shows none, and count shared weights once."""
    if not any(layer.output_shapes for layer in summary.layers):
        from gpumemnet.shapes import infer  # only `print(model)` needs it

        summary = infer(summary, setup)
    return freeze_first(count_once(without_idle(summary)))


def freeze_first(summary: ModelSummary) -> ModelSummary:
    """Mark frozen layers where the text only says how many parameters are frozen: the first ones, as in fine-tuning."""
    total, trainable = summary.total_params, summary.trainable_params
    marked = any(not layer.trainable for layer in summary.layers)
    if total is None or trainable is None or marked or summary.format == "keras":
        return summary
    frozen, layers = total - trainable, list(summary.layers)
    for index, layer in enumerate(layers):
        if frozen < (layer.params or 0) or frozen < total // 100:
            break
        if layer.params:
            layers[index] = replace(layer, trainable=False)
            frozen -= layer.params
    return replace(summary, layers=tuple(layers))


def family_of(counts: Counter[str]) -> Family:
    """Name the kind of network from how many layers of each group it has."""
    if counts["conv"] and counts["conv"] * 2 >= counts["linear"] - counts["conv"]:
        return "cnn" if not counts["attention"] else "transformer"
    if counts["attention"] or (counts["layernorm"] and counts["linear"]):
        return "transformer"
    if counts["rnn"] or counts["embedding"]:
        return "other"
    return "mlp" if counts["linear"] else "other"

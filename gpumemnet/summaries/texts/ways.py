"""Check for training methods whose memory a text cannot give: refused or reported, with a trace command."""

from __future__ import annotations

import re

from gpumemnet.errors import SummaryError
from gpumemnet.names import Source
from gpumemnet.summaries.texts.records import Layer, ModelSummary

_QUANTIZED = frozenset(("linear4bit", "linearnf4", "linearfp4", "linear8bitlt"))
"""Layer kinds of bitsandbytes."""
_TRACE = "trace the script: rad-estimate --save m.rad -- {command}"
_SHARDED = re.compile(r"^(?:FullyShardedDataParallel|FSDP[A-Z]\w*)$")
_ADAPTED = re.compile(r"^(?:LoraModel|PeftModel\w*|lora\.\w+)$")


def check(summary: ModelSummary, *, path: str) -> tuple[str, ...]:
    """Look for training methods for which a text is insufficient.

    Args:
        summary: The parsed text.
        path: File, for messages.

    Returns:
        One sentence for each that is booked with more than it needs.

    Raises:
        SummaryError: Weights are quantized: no text shows their memory.
    """
    quantized = next((layer for layer in summary.layers if _QUANTIZED & _names(layer)), None)
    if quantized is not None:
        raise SummaryError(
            path=path,
            line=quantized.line,
            problem="its weights are quantized (bitsandbytes), and no text shows what they need",
            fix=_TRACE.format(command="python train.py"),
        )
    classes = {cls for layer in summary.layers for cls, _ in layer.path}
    found = []
    if any(map(_SHARDED.match, classes)):
        fix = _TRACE.format(command="torchrun --nproc-per-node=N train.py")
        found.append(f"FSDP: a rank has a part of this model, and all of it is booked; {fix}")
    if summary.format is Source.MODULE_REPR and any(map(_ADAPTED.match, classes)):
        fix = _TRACE.format(command="python train.py")
        found.append(
            f"LoRA: print(model) does not show what is frozen, and all weights count as trained; {fix}"
        )
    return tuple(found)


def _names(layer: Layer) -> set[str]:
    """Return the names of a layer's class and of those around it, as in `_QUANTIZED`."""
    return {layer.kind, *(cls.rpartition(".")[2].lower() for cls, _ in layer.path)}

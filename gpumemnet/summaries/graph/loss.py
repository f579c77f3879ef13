"""The loss at the end of a training step, which no summary shows."""

from __future__ import annotations

import re

from gpumemnet.names import Group
from gpumemnet.summaries.graph import stems
from gpumemnet.summaries.graph.builder import TapeBuilder
from gpumemnet.summaries.graph.tape import Op

_FLOAT_LOSS = (
    r"ForCausalLM$|LMHeadModel$|^BertGenerationDecoder$|^(?:ModernBert|EuroBert|Esmc|NeoMME)ForMaskedLM$"
)
"""transformers' language models take the loss of `logits.float()`; of those for masked words, the ones that call
`self.loss_function` (5.17)."""
_OWN_LOSS = (
    r"^(?:(?:M?Bart|PLBart|BigBirdPegasus|Pegasus|Blenderbot(?:Small)?|Clvp|CpmAnt|Marian|Musicgen(?:Melody)?|Mvp"
    r"|TrOCR|Whisper|ProphetNet)ForCausalLM|XLNetLMHeadModel|(?:XLM|Flaubert)WithLMHeadModel|BlipTextLMHeadModel)$"
)
"""Those among them with a special loss on the unconverted scores (5.17)."""


_ENLARGED = "ForSemanticSegmentation"
"""transformers' models with this end of their name enlarge their classes' scores to the labels' (the image's) size by a
function, and compute the loss there."""
_IMAGE = 4
_WORDS = "ForConditionalGeneration"
"""Models that may output token states first and the words' scores after them (FSMT)."""


def cross_entropy(builder: TapeBuilder, root: str) -> None:
    """Add the cross entropy on the last output: its log-softmax is saved for backward, in 32 bits.

    Args:
        builder: The tape so far.
        root: Class name of the model, which determines the precision of its loss.
    """
    if builder.current < 0 or not builder.tape.ops:
        return
    logits = _of_words(builder) if root.endswith(_WORDS) else builder.current
    shape = builder.shapes[logits]
    if root.endswith(_ENLARGED) and len(shape) == _IMAGE:
        shape, logits = _enlarged(builder, shape, logits)
    widened = re.search(_FLOAT_LOSS, root) and not re.match(_OWN_LOSS, root)
    wide = 4 if builder.amp or widened else builder.high
    if builder.items[logits] != wide:
        narrow, logits = logits, builder.tensor(shape, wide)
        builder.add(Op(inputs=(narrow,), output=logits, group=Group.LOSS))
    probabilities = builder.tensor(shape, wide)
    builder.add(Op(inputs=(logits,), output=probabilities, saved=(probabilities,), group=Group.LOSS))


def _of_words(builder: TapeBuilder) -> int:
    """Return the last tensor, or the words' scores if the text shows less for the model than for its last layer."""
    shape = builder.shapes[builder.current]
    last = next((op.output for op in reversed(builder.tape.ops) if op.group is Group.LINEAR), builder.current)
    wide = builder.shapes[last]
    return last if wide[:-1] == shape[:-1] and wide[-1] > 4 * shape[-1] else builder.current


def _enlarged(builder: TapeBuilder, shape: tuple[int, ...], scores: int) -> tuple[tuple[int, ...], int]:
    """Enlarge scores to the size of the input image; return shape and number of the new tensor."""
    images = (builder.shapes[number] for number in sorted(builder.tape.constants))
    image = next((found for found in images if len(found) == _IMAGE and found[0] == shape[0]), None)
    image = image or stems.coloured(builder, shape) or shape
    if image[2:] == shape[2:]:
        return shape, scores
    shape = (*shape[:2], *image[2:])
    made = builder.tensor(shape, builder.items[scores])
    builder.add(Op(inputs=(scores,), output=made, group=Group.FUNCTION))
    return shape, made

"""The loss at the end of a training step, which no summary shows."""

from __future__ import annotations

import re

from gpumemnet.graph.builder import TapeBuilder
from gpumemnet.graph.tape import Op
from gpumemnet.names import Group

_FLOAT_LOSS = re.compile(r"ForCausalLM$|LMHeadModel$|^(?:ModernBert|EuroBert|Esmc|NeoMME)ForMaskedLM$")
"""transformers' language models take the loss of `logits.float()`; of those for masked words, the ones that call
`self.loss_function` (5.17)."""


def cross_entropy(builder: TapeBuilder, root: str) -> None:
    """Add the cross entropy on the last output: its log-softmax is saved for backward, in 32 bits.

    Args:
        builder: The tape so far.
        root: Class name of the model, which tells in what precision its loss is taken.
    """
    if builder.current < 0 or not builder.tape.ops:
        return
    shape, logits = builder.shapes[builder.current], builder.current
    wide = 4 if builder.amp or _FLOAT_LOSS.search(root) else builder.high
    if builder.items[logits] != wide:
        logits = builder.tensor(shape, wide)
        builder.add(Op(inputs=(builder.current,), output=logits, group=Group.LOSS))
    probabilities = builder.tensor(shape, wide)
    builder.add(Op(inputs=(logits,), output=probabilities, saved=(probabilities,), group=Group.LOSS))

"""The loss at the end of a training step, which no summary shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumemnet.tape import Op
from gpumemnet.tied import root_class

if TYPE_CHECKING:
    from gpumemnet.wiring import Wiring

_FLOAT_LOSS = re.compile(r"ForCausalLM$|LMHeadModel$")
"""transformers' language models take the loss of `logits.float()`."""


def cross_entropy(wiring: Wiring) -> None:
    """Cross entropy on the last output: its log-softmax is kept, in 32 bits."""
    if wiring.current < 0 or not wiring.tape.ops:
        return
    shape, logits = wiring.shapes[wiring.current], wiring.current
    wide = 4 if wiring.amp or _FLOAT_LOSS.search(root_class(wiring.summary)) else wiring.high
    if wiring.items[logits] != wide:
        logits = wiring.tensor(shape, wide)
        wiring.add(Op(inputs=(wiring.current,), output=logits, group="loss"))
    probabilities = wiring.tensor(shape, wide)
    wiring.add(Op(inputs=(logits,), output=probabilities, saved=(probabilities,), group="loss"))

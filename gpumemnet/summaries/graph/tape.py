"""A training step as a list of operations on tensors: what the summary shows, plus what it omits."""

from __future__ import annotations

from gpumemnet.names import Group
from gpumemnet.records import changing, field


@changing
class Op:
    """An operation of the forward pass and the tensors that its backward needs.

    Attributes:
        inputs: Tensors read; each gets a gradient unless it is in `Tape.constants`.
        output: Tensor made.
        saved: Tensors saved until this operation's backward has run.
        extra: Tensors made in addition to the output and kept (masks, indices, 16-bit copies); part of `saved`.
        weights: Parameters used (indices into `Tape.parameters`); their gradients appear in backward.
        forward_workspace_bytes: Workspace held while the forward pass runs.
        data_workspace_bytes: Workspace held while the gradient of the input is computed.
        weight_workspace_bytes: Workspace held while the gradient of the weight is computed.
        group: Family of kinds, as in the table of kinds, for the sums of the profile.
        block: Number of the repeated block it belongs to (gradient checkpointing); 0 outside.
    """

    inputs: tuple[int, ...]
    output: int
    saved: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    forward_workspace_bytes: int = 0
    data_workspace_bytes: int = 0
    weight_workspace_bytes: int = 0
    group: Group = Group.PLAIN
    block: int = 0


@changing
class Tape:
    """A forward pass.

    Attributes:
        sizes: Bytes of each tensor.
        constants: Tensors that need no gradient and live from step to step (the input batch, index tensors).
        detached: Tensors made only from constants, by layers without trainable parameters: they get no gradient.
        ops: Operations in order.
        parameters: Bytes of each trainable parameter tensor.
        frozen: Bytes of each parameter or buffer tensor without a gradient.
        grouped: Number of grouped convolutions.
        guessed: Number of operations that the text does not show.
        score_bytes: Materialized attention scores.
        doubt_bytes: Extra score bytes if attention assumed fused is not.
        hidden_bytes: Tensors of layers that the text hides.
        hidden_percent: Factor times 100 by which their guess was scaled to agree with the text's totals.
        fourier_bytes: Memory that the most demanding convolution would need by Fourier transform.
        mult_adds: Multiply-adds of convolutions, linear and recurrent layers and attention.
        cast_bytes: 16-bit copies of weights that autocast keeps until the step's backward ends.
    """

    sizes: list[int] = field(default_factory=list)
    constants: set[int] = field(default_factory=set)
    detached: set[int] = field(default_factory=set)
    ops: list[Op] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)
    frozen: list[int] = field(default_factory=list)
    grouped: int = 0
    guessed: int = 0
    score_bytes: int = 0
    doubt_bytes: int = 0
    hidden_bytes: int = 0
    hidden_percent: int = 100
    fourier_bytes: int = 0
    mult_adds: int = 0
    cast_bytes: int = 0

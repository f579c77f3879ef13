"""Records of a parsed model summary, independent of its format."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gpumemnet.names import Source

WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule")
"""Wrapper classes that add nothing to a model."""
RECREATE = "print the summary again and save it unchanged"
"""Fix for most texts that cannot be read."""
TRACE = "trace the script: rad-estimate --save m.rad -- python train.py"
BY_HAND = "state the peak that nvidia-smi shows: #RAD memory=12G"
"""Fixes for texts that no further print makes right."""
Shape = tuple[int | None, ...]
"""A tensor shape as printed; None is the batch dimension if the text leaves it open (-1, None)."""


class Layer(NamedTuple):
    """One row of a summary: a leaf module that runs, with what the text says about it.

    Attributes:
        kind: Lower-case PyTorch class name: "conv2d", "linear", "batchnorm2d", "multiheadattention". The extra
            kind "parameter" represents parameters that a container holds directly (class tokens, for example).
        name: The name as printed, for messages.
        path: Enclosing containers from the outside in, as (class name, local name) pairs; empty if not shown.
        input_shapes: Shapes of the inputs, batch first; empty if the text does not show them.
        output_shapes: Shapes of the outputs, batch first; empty if the text does not show them.
        param_shapes: Shapes of the layer's own parameters if known or implied by its arguments.
        params: Number of own parameters (elements, not bytes); None if the text does not say.
        trainable: False if the text says the parameters are frozen.
        args: Constructor arguments that the text shows, e.g. {"kernel_size": (3, 3), "inplace": True}.
        is_block: A container: its end (torchsummary), or one whose contents the text cut off (torchinfo depth).
        runs: False for a module that the text lists but whose forward was not called.
        line: 1-based line of the text.
    """

    kind: str
    name: str
    path: tuple[tuple[str, str], ...] = ()
    input_shapes: tuple[Shape, ...] = ()
    output_shapes: tuple[Shape, ...] = ()
    param_shapes: tuple[tuple[int, ...], ...] = ()
    params: int | None = None
    trainable: bool = True
    args: Mapping[str, object] = MappingProxyType({})
    is_block: bool = False
    runs: bool = True
    line: int = 0


class ModelSummary(NamedTuple):
    """A parsed model summary.

    Attributes:
        format: Format of the text.
        layers: Leaf layers in the order in which they run (or are printed).
        batch_size: The batch size that the shapes were printed with; None if the shapes leave it open.
        total_params: Total number of parameters the text states; None if it states none.
        trainable_params: Trainable ones among them; None if not stated.
        output_bytes: Outputs of all layers with parameters, including those hidden by a depth limit, in 32 bits and
            for the printed batch size (torchinfo's "Forward/backward pass size", which counts them twice).
        input_bytes: Upper bound of the model's inputs, including labels, for the printed batch size ("Input size",
            which is rounded); None if not stated.
        warnings: One sentence for each part that could not be understood, with its line.
    """

    format: Source
    layers: tuple[Layer, ...]
    batch_size: int | None = None
    total_params: int | None = None
    trainable_params: int | None = None
    output_bytes: int | None = None
    input_bytes: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """Class name of the model without wrappers; empty if the text shows no containers."""
        classes = (cls for layer in self.layers for cls, _ in layer.path)
        return next((cls for cls in classes if cls not in WRAPPERS), "")

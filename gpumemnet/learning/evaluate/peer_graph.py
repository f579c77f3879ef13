"""Rebuild the networks of GPUMemNet's generator as graphs: its lists of layers lack shapes, skips and concatenations.

Shapes follow from the counts: a convolution of kernel k has c * (k * k * c_in + 1) parameters. Skips and
concatenations follow from the architecture's name (thesis section 5.4.4, "Network architecture shapes"): a residual
block adds its input to the output of its two convolutions; a dense block of four layers concatenates all outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpumemnet.learning.evaluate.peer_data import PeerLayer, PeerRun

GROWTH = 32
"""Channels added by each layer of a dense block."""
LAYERS_PER_DENSE_BLOCK = 4
_TAIL = ("pool", "linear", "softmax", "Softmax", "Sigmoid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    Attributes:
        kind: "input", "conv", "norm", "dropout", "linear", "pool", "add", "cat", or an activation's name.
        inputs: Numbers of the nodes it reads.
        channels: Channels of its output.
        area: Height times width of its output.
        params: Its own parameters.
        kernel: Kernel size of a convolution, else 0.
    """

    kind: str
    inputs: tuple[int, ...]
    channels: int
    area: int
    params: int = 0
    kernel: int = 0

    @property
    def elements(self) -> int:
        """Elements of its output for one sample."""
        return self.channels * self.area


def graph(run: PeerRun) -> list[Operation]:
    """Rebuild the graph of a run; node 0 is the input batch."""
    builder = _Builder(run)
    groups, tail = _groups(run.layers)
    if run.architecture == "residual" and run.count("conv"):
        end = builder.residual(groups)
    elif run.architecture == "dense" and run.count("conv"):
        end = builder.dense(groups)
    else:
        end = 0
        for group in groups:
            end = builder.chain(group, end)
    builder.chain(tail, end)
    return builder.nodes


def _groups(layers: tuple[PeerLayer, ...]) -> tuple[list[list[PeerLayer]], list[PeerLayer]]:
    """Split the list into convolutions (or linear layers) with their followers, and the final classifier."""
    groups: list[list[PeerLayer]] = []
    tail: list[PeerLayer] = []
    convolutional = any(layer.kind == "conv" for layer in layers)
    for layer in layers:
        if convolutional and layer.kind in _TAIL:
            tail.append(layer)
        elif layer.kind in ("conv", "linear"):
            groups.append([layer])
        else:
            groups[-1].append(layer)
    return groups, tail


class _Builder:
    def __init__(self, run: PeerRun) -> None:
        self.nodes = [Operation(kind="input", inputs=(), channels=run.channels, area=run.image_size**2)]

    def add(self, node: Operation) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def chain(self, layers: list[PeerLayer], start: int) -> int:
        for layer in layers:
            start = self.add(self._node(layer, start))
        return start

    def _node(self, layer: PeerLayer, source: int) -> Operation:
        before = self.nodes[source]
        if layer.kind == "conv":
            for kernel in (3, 1):
                channels, rest = divmod(layer.params, kernel * kernel * before.channels + 1)
                area, odd = divmod(layer.activations, max(channels, 1))
                if not rest and not odd and channels and math.isqrt(area) ** 2 == area:
                    return Operation(
                        kind="conv",
                        inputs=(source,),
                        channels=channels,
                        area=area,
                        params=layer.params,
                        kernel=kernel,
                    )
            raise ValueError(f"no shape fits {layer} after {before}")
        flat = layer.kind in _TAIL or before.area == 1
        return Operation(
            kind=layer.kind,
            inputs=(source,),
            channels=layer.activations if flat else before.channels,
            area=1 if flat else before.area,
            params=1 if layer.kind == "PReLU" else layer.params,
        )

    def residual(self, groups: list[list[PeerLayer]]) -> int:
        end = index = 0
        while index < len(groups):
            shortcut = end
            # A shortcut is the only one without activation: a bare 1x1 convolution before its block's two.
            if all(layer.kind in ("conv", "norm") for layer in groups[index]):
                shortcut = self.chain(groups[index], end)
                index += 1
            for group in groups[index : index + 2]:
                end = self.chain(group, end)
            index += 2
            end = self._join("add", (end, shortcut))
        return end

    def dense(self, groups: list[list[PeerLayer]]) -> int:
        features = [0]
        for index, group in enumerate(groups):
            conv = group[0]
            width = sum(self.nodes[number].channels for number in features)
            full = len(features) > LAYERS_PER_DENSE_BLOCK
            grows = conv.activations % GROWTH == 0 and conv.params == GROWTH * (9 * width + 1)
            if full and not grows:  # a transition: a 1x1 convolution, then pooling
                end = self.chain(group, self._concatenate(features))
                following = groups[index + 1][0].activations // GROWTH if index + 1 < len(groups) else 0
                if following and following != self.nodes[end].area:
                    channels = self.nodes[end].channels
                    end = self.add(Operation(kind="pool", inputs=(end,), channels=channels, area=following))
                features = [end]
                continue
            if full:
                features = [self._concatenate(features)]
            features.append(self.chain(group, self._concatenate(features)))
        return self._concatenate(features) if len(features) > 1 else features[0]

    def _concatenate(self, features: list[int]) -> int:
        return self._join("cat", tuple(features))

    def _join(self, kind: str, inputs: tuple[int, ...]) -> int:
        first = self.nodes[inputs[0]]
        channels = sum(self.nodes[number].channels for number in inputs) if kind == "cat" else first.channels
        return self.add(Operation(kind=kind, inputs=inputs, channels=channels, area=first.area))

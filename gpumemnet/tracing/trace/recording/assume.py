"""Answers for what fake tensors cannot know, chosen so that memory is not underestimated."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from gpumemnet.tracing.trace.cuda import packed
from gpumemnet.tracing.trace.cuda.older import tree_leaves
from gpumemnet.tracing.trace.recording import masks
from gpumemnet.tracing.trace.recording.guards import Guards

aten = torch.ops.aten
_IN_PLACE = ("aten::_fused_", "aten::_foreach_")


class Assumptions:
    """Answers for operators whose result depends on values.

    Attributes:
        warnings: One sentence for each kind of answer that can change the memory.
        stepping: Whether an optimizer is making a step.
        guards: Answers for branches, whose warnings it holds.
    """

    def __init__(self) -> None:
        self.warnings: dict[str, None] = {}
        self.stepping = False
        self.guards = Guards()

    def enter(self, phase: str) -> None:
        """Begin a phase of the step."""
        self.stepping = phase == "optimizer"
        if self.stepping:
            self.guards.stepped()

    def sentences(self) -> tuple[str, ...]:
        """Return all warnings."""
        return (*self.warnings, *self.guards.warnings())

    def answer(self, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any] | None:
        """Return (result,) if the operator cannot run on fake tensors, else None.

        Tensors with values, such as a script's data, are used to compute it.

        Args:
            func: The operator.
            args: Its positional arguments.
            kwargs: Its arguments by name.
        """
        handler = _HANDLERS.get(func)
        if handler is not None:
            return _computed(func, args, kwargs) or handler(self, args, kwargs)
        if func._schema.name == "torchvision::nms":
            return self._nms(args)
        followed = masks.follow(func, args, kwargs) or packed.follow(func, args, kwargs)
        if followed is not None:
            return followed
        # Fused and multi-tensor optimizers modify their arguments in place; some have no meta kernel.
        name = func._schema.name
        if func._schema.returns or not name.startswith(_IN_PLACE):
            return None
        return (None,) if name.startswith("aten::_fused_") or _of_gpu(args) else None

    def _scalar(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        tensor = args[0]
        if not isinstance(tensor, FakeTensor) or tensor.constant is not None:
            return None
        if masks.nothing(tensor):
            return (self.guards.truth(likely=False),)
        known = packed.value_of(tensor)
        if known is not None:
            return (known,)
        if tensor.dtype == torch.bool:
            return (self.guards.truth(),)
        if tensor.is_floating_point():
            # On the GPU: no gradient overflowed. On the CPU, or where read: an optimizer has made its first step.
            default = 0.0 if tensor.fake_device.type == "cuda" and not self.stepping else 1.0
            return (self.guards.number(default)[0],)
        number, tested = self.guards.number(1)
        if not tested:
            self.warnings["an integer read from a tensor was taken as 1"] = None
        return (number,)

    def _pack(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        self.warnings[packed.WARNING] = None
        return (packed.pack(args[0], args[2]),)

    def _equal(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        if not any(isinstance(each, FakeTensor) for each in args[:2]):
            return None
        return (self.guards.truth(),)

    def _rand(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        """Return 1 for a single random number, which may decide on dropping a layer (LayerDrop): so none is dropped."""
        return (torch.tensor(1.0, dtype=kwargs.get("dtype")),) if not args[0] else None

    def _sparse_mask(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        """Return the elements of a matrix at the places of a sparse one, as Adagrad takes those of its sum."""
        tensor, mask = args[:2]
        if not isinstance(mask, FakeTensor) or mask.layout is not torch.sparse_coo:
            return None
        values = torch.empty_like(mask._values(), dtype=tensor.dtype)
        return (torch.sparse_coo_tensor(mask._indices().clone(), values, mask.shape, is_coalesced=True),)

    def _nonzero(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        tensor = args[0]
        if not isinstance(tensor, FakeTensor):
            return None
        chosen = self._chosen(tensor)
        return (torch.empty((chosen, tensor.dim()), dtype=torch.int64, device=tensor.device),)

    def _nms(self, args: Any) -> tuple[Any] | None:
        if not isinstance(args[0], FakeTensor):
            return None
        self.warnings["boxes that overlap were taken to be all kept"] = None
        return (torch.empty((args[0].shape[0],), dtype=torch.int64, device=args[0].device),)

    def _masked_select(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        tensor, mask = args[:2]
        whole = torch.broadcast_tensors(tensor, mask)[0].numel()
        n = min(self._chosen(mask), whole) if mask.numel() == whole else self._all_chosen(whole)
        return (torch.empty((n,), dtype=tensor.dtype, device=tensor.device),)

    def _index(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        tensor, indices = args[0], args[1]
        if not any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices):
            return None
        plain: list[Tensor | None] = []
        for index in indices:
            if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
                n = self._chosen(index)
                plain += [
                    torch.empty((n,), dtype=torch.int64, device=index.device) for _ in range(index.dim())
                ]
            else:
                plain.append(index)
        return (aten.index.Tensor(tensor, plain),)

    def _unique(self, args: Any, kwargs: Any) -> tuple[Any] | None:
        tensor = args[0]
        if not isinstance(tensor, FakeTensor):
            return None
        n = self._all_chosen(tensor.numel())
        where = torch.empty(tensor.shape, dtype=torch.int64, device=tensor.device)
        counts = torch.empty((n,), dtype=torch.int64, device=tensor.device)
        return ((torch.empty((n,), dtype=tensor.dtype, device=tensor.device), where, counts),)

    def _product(self, args: Any, kwargs: Any) -> tuple[Any]:
        """Multiply with a requested type; PyTorch 2.11 to 2.15 take the type for a factor on fake tensors."""
        if kwargs.get("out") is not None:
            return (kwargs["out"],)
        left, right = [each for each in args if isinstance(each, Tensor)][-2:]
        dtype = next((each for each in args if isinstance(each, torch.dtype)), kwargs.get("out_dtype"))
        return (torch.empty((*left.shape[:-1], right.shape[-1]), dtype=dtype, device=left.device),)

    def _chosen(self, mask: Tensor) -> int:
        if not isinstance(mask, FakeTensor):
            with _disable_current_modes():
                return int(mask.count_nonzero())
        n = masks.at_most(mask)
        return self._all_chosen(n) if n == mask.numel() else n

    def _all_chosen(self, n: int) -> int:
        self.warnings["a selection by mask or of unique values was taken to choose every element"] = None
        return n


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any] | None:
    """Return (result,) if every tensor has values; None if one is fake, or there is none."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if not tensors or any(isinstance(each, FakeTensor) or each.is_meta for each in tensors):
        return None
    with _disable_current_modes():
        return (func(*args, **kwargs),)


def _of_gpu(args: Any) -> bool:
    """Return whether a list of tensors is on the pretended GPU; an optimizer's step counts are on the CPU."""
    first = args[0][0] if args and isinstance(args[0], (list, tuple)) and args[0] else None
    return isinstance(first, FakeTensor) and first.fake_device.type == "cuda"


_HANDLERS: dict[Any, Any] = {
    aten._local_scalar_dense.default: Assumptions._scalar,
    aten._pack_padded_sequence.default: Assumptions._pack,
    aten.equal.default: Assumptions._equal,
    aten.allclose.default: Assumptions._equal,
    aten.rand.default: Assumptions._rand,
    aten.sparse_mask.default: Assumptions._sparse_mask,
    aten.nonzero.default: Assumptions._nonzero,
    aten.masked_select.default: Assumptions._masked_select,
    aten.index.Tensor: Assumptions._index,
    aten._unique2.default: Assumptions._unique,
    **{
        getattr(packet, overload): Assumptions._product
        for packet in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm)
        for overload in ("dtype", "dtype_out")
        if overload in packet.overloads()
    },
}

"""Use fake tensors on the GPU and real ones on the CPU, so that the script's data and arithmetic stay real.

Tensors that move to the GPU lose their values. Tensors that come back hold zeros, and a number read from the GPU is
whatever `gpumemnet.tracing.trace.recording.assume` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
import torch.utils._device
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from gpumemnet.tracing.script import tensor_classes
from gpumemnet.tracing.script.libraries import legacy
from gpumemnet.tracing.trace.build import LARGE_ELEMENTS, skip_inits
from gpumemnet.tracing.trace.cuda.device import CudaFakeMode, pretended_cuda, replaced
from gpumemnet.tracing.trace.cuda.tensors import CUDA, local, on_cuda, unfolds
from gpumemnet.tracing.trace.recording.recorder import Recorder

aten = torch.ops.aten
_NOTHING: Mapping[str, Any] = {}
_RANDOM = (
    Tensor.normal_,
    Tensor.uniform_,
    Tensor.exponential_,
    Tensor.log_normal_,
    Tensor.cauchy_,
    Tensor.bernoulli_,
)


class MixedMode(CudaFakeMode):
    """Fake mode that leaves CPU tensors real."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] = _NOTHING
    ) -> Any:
        """Run one operator."""
        if unfolds(types):
            return NotImplemented
        kwargs = kwargs or {}
        leaves = tree_flatten((args, kwargs))[0]
        fake = any(isinstance(leaf, FakeTensor) for leaf in leaves)
        where = kwargs.get("device")
        kind = None if where is None else torch.device(where).type
        if fake and func is aten._to_copy.default and kind == "cpu":
            return _zeros(args[0], kwargs.get("dtype"))
        if func is aten.copy_.default and fake:
            return args[0]
        if kind == "meta" and (_Meta.requested or _defaults_to_meta()):
            return func(*args, **kwargs) if not fake else _shapes(func, args, kwargs)
        if fake:
            return super().__torch_dispatch__(func, types, args, kwargs)
        if kind in ("cuda", "meta"):
            if func is aten._to_copy.default:
                tensor, dtype = args[0], kwargs.get("dtype") or args[0].dtype
                func, args = aten.empty_strided.default, (tensor.shape, _strides(tensor, kwargs))
                kwargs = {"dtype": dtype, "device": CUDA}
            return super().__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **kwargs)


def _strides(tensor: Tensor, kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the strides of a copy: unchanged if dense, or as requested."""
    wanted = kwargs.get("memory_format")
    meta = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
    if wanted is None or wanted is torch.preserve_format:
        return tuple(torch.empty_like(meta).stride())
    return tuple(torch.empty_like(meta, memory_format=wanted).stride())


class _Meta:
    """The script's own tensors on "meta", as which C++ also sees the pretended GPU.

    Attributes:
        used: Whether the script made any.
        requested: Whether the current call is on these alone, or names that device.
    """

    used = requested = False


def _defaults_to_meta() -> bool:
    """Return whether the script set "meta" as its default device, which calls are given after `ScriptCalls`."""
    current = getattr(torch.utils._device, "CURRENT_DEVICE", None)
    return current is not None and current.type == "meta"


def _names_meta(args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call names "meta", or is on a tensor that the script made there."""
    device = kwargs.get("device")
    if device is not None and _is_meta(device):
        return True
    return any(map(_is_meta, args)) or (_Meta.used and any(map(_is_meta, kwargs.values())))


def _is_meta(value: Any) -> bool:
    if isinstance(value, Tensor):
        own = local(value)
        return _Meta.used and not isinstance(own, FakeTensor) and own.device.type == "meta"
    return isinstance(value, (str, torch.device)) and str(value) == "meta"


def _shapes(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Run an operator that moves tensors from the pretended GPU to "meta"."""

    def plain(leaf: Any) -> Any:
        if not isinstance(leaf, FakeTensor):
            return leaf
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")

    args, kwargs = tree_map(plain, (args, kwargs))
    return func(*args, **kwargs)


class Read:
    """Values that the script read back.

    Attributes:
        values: Whether more than single numbers were read; those are zeros here.
    """

    values = False


def _zeros(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    Read.values = Read.values or tensor.numel() > 1
    zeros: Tensor = aten.zeros.default(
        list(tensor.shape), dtype=dtype or tensor.dtype, device=torch.device("cpu")
    )
    return zeros


class ScriptCalls(TorchFunctionMode):
    """Returns values from the GPU, and leaves the weights of large models unfilled."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one call."""
        kwargs = kwargs or {}
        if func in _ELEMENT and _is_plain(*args):
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                return func(*args)
        if not _Meta.requested and _names_meta(args, kwargs):
            _Meta.used = _Meta.requested = True
            try:
                return func(*args, **kwargs)
            finally:
                _Meta.requested = False
        first = args[0] if args else None
        if isinstance(first, Tensor):
            if func == _IS_META and on_cuda(first):
                return False  # fake tensors count as meta; libraries would treat existing ones as waiting to be filled
            if func == _SET_DATA and on_cuda(args[1]) and not isinstance(first, FakeTensor):
                return tensor_classes.become(first, args[1])
            if func is Tensor.__format__ and on_cuda(first) and not first.dim():
                return format(first.item(), args[1])
            if func is Tensor.type:
                typed = legacy.type_of(*args, **kwargs)
                return func(*args, **kwargs) if typed is NotImplemented else typed
            if func in _BACK and on_cuda(first):
                return _BACK[func](_zeros(first.detach(), None))
            filled = func in _RANDOM or (func is Tensor.copy_ and isinstance(first, nn.Parameter))
            if filled and first.numel() > LARGE_ELEMENTS and not isinstance(first, FakeTensor):
                return first
        return func(*args, **kwargs)


def _is_plain(tensor: Any, index: Any, *value: Any) -> bool:
    """Tell whether one row or number of a tensor on the CPU is read or set: texts are read token by token."""
    return (
        type(tensor) is Tensor
        and type(index) is int
        and tensor.device.type == "cpu"
        and all(type(each) in (int, float) for each in value)
    )


_ELEMENT = (Tensor.__getitem__, Tensor.__setitem__)
_IS_META = Tensor.is_meta.__get__  # type: ignore[attr-defined]
_SET_DATA = Tensor.data.__set__  # type: ignore[attr-defined]
_BACK: dict[Any, Any] = {
    Tensor.numpy: lambda zeros: zeros.numpy(),
    Tensor.tolist: lambda zeros: zeros.tolist(),
    Tensor.__array__: lambda zeros: zeros.numpy(),
}


def enter(stack: ExitStack, recorder: Recorder) -> None:
    """Enter all modes permanently.

    Args:
        stack: Receives the contexts.
        recorder: Records what is made on the pretended GPU.
    """
    # An optimizer made before the model moved keeps its parameters: they move by swapping.
    if hasattr(torch.__future__, "set_swap_module_params_on_conversion"):
        torch.__future__.set_swap_module_params_on_conversion(True)
        torch.utils.swap_tensors = tensor_classes.swap
    else:  # before 2.3 they are recreated, and an optimizer must be made after the model moved
        torch.__future__.set_overwrite_module_params_on_conversion(True)
    stack.enter_context(skip_inits())
    stack.enter_context(pretended_cuda(MixedMode))
    stack.enter_context(replaced(Tensor, "_make_subclass", staticmethod(tensor_classes.of_class)))
    stack.enter_context(replaced(FakeTensor, "__new__", staticmethod(tensor_classes.of_same_class)))
    stack.enter_context(replaced(FakeTensor, "__copy__", tensor_classes.copied))
    legacy.pretended(stack)
    stack.enter_context(ScriptCalls())
    stack.enter_context(recorder)

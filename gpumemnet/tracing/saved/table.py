"""Make torchinfo's table at full depth, from one forward pass on fake tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.errors import TraceError
from gpumemnet.tracing.trace.build import move_to_cuda
from gpumemnet.tracing.trace.cuda.device import pretended_cuda
from gpumemnet.tracing.trace.cuda.older import tree_leaves
from gpumemnet.tracing.trace.cuda.tensors import CUDA
from gpumemnet.tracing.trace.inputs import InputSpec
from gpumemnet.tracing.trace.loss import TARGET
from gpumemnet.units import MEGA

COLUMNS = ("Input Shape", "Output Shape", "Param #", "Kernel Shape")
_GAP = 3


@dataclass
class _ModuleCall:
    """One call of a module, in the order in which calls begin."""

    module: nn.Module
    name: str
    depth: int
    again: bool
    input: Sequence[int] = ()
    output: Sequence[int] = ()
    output_bytes: int = 0


def of_model(model: nn.Module, inputs: Sequence[InputSpec]) -> str:
    """Return the table.

    Args:
        model: The model; its weights are unusable afterwards.
        inputs: Inputs of its forward; a target is ignored.

    Raises:
        TraceError: The model does not run on these inputs.
    """
    rows: list[_ModuleCall] = []
    try:
        with pretended_cuda(), torch.no_grad():
            move_to_cuda(model, None)
            made = [
                (s.name, torch.empty(s.shape, dtype=getattr(torch, s.dtype), device=CUDA)) for s in inputs
            ]
            with _watched(model, rows):
                model.train()(
                    *(t for n, t in made if n is None), **{n: t for n, t in made if n and n != TARGET}
                )
    except Exception as exc:
        text = " ".join(str(exc).split())[:300]
        raise TraceError(f"the model does not run on these inputs: {type(exc).__name__}: {text}") from exc
    numbers = _numbers(rows)
    called = {id(row.module) for row in rows}
    counted: set[int] = set()
    lines = [_cells(row, number, called, counted) for row, number in zip(rows, numbers)]
    head = ("Layer (type (var_name):depth-idx)", *COLUMNS)
    widths = [max(len(line[at]) for line in (head, *lines)) + _GAP for at in range(len(head))]
    rule = "=" * sum(widths)
    body = [
        "".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in (head, *lines)
    ]
    return "\n".join((rule, body[0], rule, *body[1:], rule, *_totals(model, rows, rule)))


@contextmanager
def _watched(model: nn.Module, rows: list[_ModuleCall]) -> Iterator[None]:
    """Record every call of every module inside; nested calls become children."""
    names = {id(module): name.rpartition(".")[2] for name, module in model.named_modules()}
    open_rows: list[_ModuleCall] = []
    seen: set[int] = set()

    def begins(module: nn.Module, args: Any, kwargs: Any) -> None:
        row = _ModuleCall(
            module, names.get(id(module)) or type(module).__name__, len(open_rows), id(module) in seen
        )
        seen.add(id(module))
        first = next((t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)), None)
        row.input = () if first is None else tuple(first.shape)
        rows.append(row)
        open_rows.append(row)

    def ends(module: nn.Module, args: Any, output: Any) -> None:
        row = open_rows.pop()
        first = next((t for t in tree_leaves(_plain(output)) if isinstance(t, Tensor)), None)
        if first is not None:
            row.output, row.output_bytes = tuple(first.shape), first.numel() * first.element_size()

    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(begins, with_kwargs=True))
        handles.append(module.register_forward_hook(ends))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _plain(output: Any) -> Any:
    """Return the values of a Hugging Face model's output of any class."""
    return list(output.values()) if isinstance(output, Mapping) else output


def _numbers(rows: list[_ModuleCall]) -> list[int]:
    """Return each row's number among those of its depth."""
    counts: dict[int, int] = {}
    found = []
    for row in rows:
        counts[row.depth] = counts.get(row.depth, 0) + 1
        found.append(counts[row.depth])
    return found


def _parameters(module: nn.Module, called: set[int]) -> Iterator[nn.Parameter]:
    """Yield a module's parameters and those of submodules that it uses without calling them (attention does)."""
    yield from module.parameters(recurse=False)
    for child in module.children():
        if id(child) not in called:
            yield from _parameters(child, called)


def _cells(row: _ModuleCall, number: int, called: set[int], counted: set[int]) -> tuple[str, ...]:
    """Return the cells of a row; weights that an earlier row has counted, such as tied ones, are repeated."""
    kind = type(row.module).__name__
    tree = "│    " * (row.depth - 1) + ("└─" if row.depth > 1 else "├─") if row.depth else ""
    where = f": {row.depth}-{number}" if row.depth else ""
    weight = getattr(row.module, "weight", None)
    kernel = getattr(row.module, "kernel_size", None)
    parameters = list(_parameters(row.module, called))
    own = sum(p.numel() for p in parameters)
    frozen = own and not any(p.requires_grad for p in parameters)
    again = row.again or all(id(p) in counted for p in parameters)
    counted.update(map(id, parameters))
    params = "(recursive)" if again and own else f"({own:,})" if frozen else f"{own:,}" if own else "--"
    if isinstance(kernel, int):
        kernel = [kernel] * (weight.dim() - 2 if isinstance(weight, Tensor) and weight.dim() > 2 else 1)
    return (
        f"{tree}{kind} ({row.name}){where}",
        _shape(row.input),
        _shape(row.output),
        params,
        _shape(kernel) if kernel is not None else "--",
    )


def _shape(sizes: Sequence[int]) -> str:
    return f"[{', '.join(map(str, sizes))}]" if sizes else "--"


def _totals(model: nn.Module, rows: list[_ModuleCall], rule: str) -> Iterator[str]:
    every = list(model.parameters())
    trained = sum(p.numel() for p in every if p.requires_grad)
    total = sum(p.numel() for p in every)
    yield f"Total params: {total:,}"
    yield f"Trainable params: {trained:,}"
    yield f"Non-trainable params: {total - trained:,}"
    yield rule
    # torchinfo counts the output of layers without sublayers twice: forward and backward.
    passes = 2 * sum(row.output_bytes for row in rows if not any(True for _ in row.module.children()))
    sizes = [p.numel() * p.element_size() for p in every]
    first = rows[0].input if rows else ()
    read = 4 * torch.Size(first).numel() if first else 0
    yield f"Input size (MB): {read / MEGA:.2f}"
    yield f"Forward/backward pass size (MB): {passes / MEGA:.2f}"
    yield f"Params size (MB): {sum(sizes) / MEGA:.2f}"
    yield f"Estimated Total Size (MB): {(read + passes + sum(sizes)) / MEGA:.2f}"
    yield rule

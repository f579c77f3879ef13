"""Make the summary texts of a configuration as a user would: torchsummary, torchinfo and print(model).

Models are built on the meta device, so that a text takes milliseconds and no memory. torchinfo runs unchanged;
torchsummary needs real CPU or GPU tensors, so its few lines of logic are repeated here and tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gpumemnet.learning.dataset.catalogue import workload
from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.draw import Draw
from gpumemnet.learning.dataset.workload import make_inputs

TORCHINFO_STYLES: tuple[tuple[dict[str, Any], float], ...] = (
    ({"depth": 3, "col_names": ("output_size", "num_params")}, 0.35),
    ({"depth": 12, "col_names": ("output_size", "num_params")}, 0.3),
    (
        {"depth": 12, "col_names": ("input_size", "output_size", "num_params", "kernel_size", "mult_adds")},
        0.35,
    ),
)
"""Usual columns and depths: the default, all levels, and everything."""


SMALL_BATCH = 2
"""Batch size in summaries of real models: after one summary, a user trains with many batch sizes."""


def texts(config: Configuration) -> dict[str, str]:
    """Return the texts of one configuration by format, without formats that cannot show the model.

    Some real models read the values of their tensors, which the meta device lacks; they run on the CPU instead.
    """
    if config.family != "real":
        return _texts_on("meta", config, config.batch_size)
    found = _texts_on("meta", config, SMALL_BATCH)
    return found if "torchinfo" in found else found | _texts_on("cpu", config, SMALL_BATCH)


def _texts_on(device_name: str, config: Configuration, batch_size: int) -> dict[str, str]:
    work = workload(config)
    device = torch.device(device_name)
    try:
        with device:
            model = work.build()
        args, kwargs = make_inputs(work, batch_size, device, torch.float32)
    except (RuntimeError, TypeError, NotImplementedError):
        return {}
    return _all_texts(config, model, args, kwargs, device)


def text_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts of a stored row, with the row's name."""
    torch.set_num_threads(1)
    config = Configuration.from_json(record)
    return {"seed": config.seed, "index": config.index, "variant": config.variant, "texts": texts(config)}


def texts_on_device(config: Configuration, device: torch.device) -> dict[str, str]:
    """Return the texts made with a real model on the device, for models that the meta device cannot run.

    Args:
        config: The model and its batch.
        device: Device for one run.
    """
    work = workload(config)
    model = work.build().to(device)
    args, kwargs = make_inputs(work, config.batch_size, device, torch.float32)
    return _all_texts(config, model, args, kwargs, device)


def _all_texts(
    config: Configuration,
    model: nn.Module,
    args: tuple[Tensor, ...],
    kwargs: Mapping[str, Tensor],
    device: torch.device,
) -> dict[str, str]:
    found = {"module_repr": repr(model)}
    style = Draw(config.seed, -1 - config.index).weighted(TORCHINFO_STYLES)
    with torch.no_grad():
        for name, make in (
            ("torchinfo", lambda: torchinfo_text(model, args, kwargs, device, **style)),
            ("torchsummary", lambda: torchsummary_text(model, args)),
        ):
            if name == "torchsummary" and (kwargs or not all(a.is_floating_point() for a in args)):
                # torchsummary only makes float inputs.
                continue
            try:
                found[name] = make()
            except (RuntimeError, AttributeError, TypeError, ValueError, NotImplementedError):
                continue
    return found


def torchinfo_text(
    model: nn.Module,
    args: tuple[Tensor, ...],
    kwargs: Mapping[str, Tensor],
    device: torch.device,
    **options: Any,
) -> str:
    """Return torchinfo's text of the model for these inputs.

    Args:
        model: The model.
        args: Positional inputs, batch first.
        kwargs: Inputs by name, batch first.
        device: Device of the inputs.
        options: Further options of torchinfo.
    """
    import torchinfo

    data: Any = dict(kwargs) if kwargs else list(args)
    return str(torchinfo.summary(model, input_data=data, device=device, verbose=0, **options))


def torchsummary_text(model: nn.Module, args: tuple[Tensor, ...]) -> str:
    """Return the text of torchsummary 1.5.1, with its rules for counting.

    Args:
        model: The model.
        args: Its inputs, batch first.

    Raises:
        AttributeError: A module returns something other than tensors; torchsummary also fails then.
    """
    rows: list[tuple[str, list[Any], int, bool]] = []

    def hook(module: nn.Module, _inputs: Any, output: Any) -> None:
        several = isinstance(output, (list, tuple))
        shape: list[Any] = [[-1, *o.size()[1:]] for o in output] if several else [-1, *output.size()[1:]]
        own: list[Any] = [getattr(module, name, None) for name in ("weight", "bias")]
        sized = [p for p in own if hasattr(p, "size")]
        trainable = bool(sized) and bool(getattr(own[0], "requires_grad", False))
        name = f"{type(module).__name__}-{len(rows) + 1}"
        rows.append((name, shape, sum(math.prod(p.size()) for p in sized), trainable))

    hooks = [
        m.register_forward_hook(hook)
        for m in model.modules()
        if not isinstance(m, (nn.Sequential, nn.ModuleList)) and m is not model
    ]
    try:
        model(*(a[:2] if len(a) > 1 else torch.cat([a, a]) for a in args))
    finally:
        for handle in hooks:
            handle.remove()
    thin, thick = "-" * 64, "=" * 64
    lines = [thin, f"{'Layer (type)':>20}  {'Output Shape':>25} {'Param #':>15}", thick]
    lines += [f"{name:>20}  {shape!s:>25} {params:>15,}" for name, shape, params, _ in rows]
    total = sum(params for _, _, params, _ in rows)
    trained = sum(params for _, _, params, yes in rows if yes)
    outputs = sum(_product(shape) for _, shape, _, _ in rows)
    mib = 4.0 / 1024**2
    in_mib = abs(math.prod(math.prod(a.shape[1:]) for a in args) * -1 * mib)
    out_mib, params_mib = abs(2.0 * outputs * mib), abs(total * mib)
    lines += [
        thick,
        f"Total params: {total:,}",
        f"Trainable params: {trained:,}",
        f"Non-trainable params: {total - trained:,}",
        thin,
        f"Input size (MB): {in_mib:0.2f}",
        f"Forward/backward pass size (MB): {out_mib:0.2f}",
        f"Params size (MB): {params_mib:0.2f}",
        f"Estimated Total Size (MB): {params_mib + out_mib + in_mib:0.2f}",
        thin,
    ]
    return "\n".join(lines) + "\n"


def _product(shape: list[Any]) -> int:
    return math.prod(_product(s) if isinstance(s, list) else s for s in shape)

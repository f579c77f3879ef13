"""Map a configuration to its workload, generated or real."""

from __future__ import annotations

from torch import nn

from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.generate import FAMILIES
from gpumemnet.learning.dataset.workload import Workload


def _switch_on(model: nn.Module) -> None:
    model.checkpointing = True  # type: ignore[assignment]


def workload(config: Configuration) -> Workload:
    """Return the workload of a generated or a real-world configuration."""
    if config.family == "real":
        # Imported late: torchvision, timm and transformers take seconds to import and may be missing.
        from gpumemnet.learning.dataset.real_workload import real_workload

        return real_workload(config)
    module = FAMILIES[config.family]
    return Workload(
        build=lambda: module.build(config.style, config.arch),
        inputs=module.inputs(config.arch),
        target=module.target(config.arch),
        loss=module.LOSS,
        set_checkpointing=_switch_on,
    )

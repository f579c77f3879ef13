"""torchvision's detectors: limit the positive boxes among those sampled for a training step.

Heads for masks and keypoints process only positive boxes. The labels decide which are positive, and a trace has no
values. The sampler takes at most `batch_size_per_image * positive_fraction` of them (128 of Mask R-CNN's 512 boxes).
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from gpumemnet.tracing.trace.recording import masks

_DONE = "_rad_reported"
"""Attribute that marks the replaced method."""


def pretended() -> None:
    """Apply the limit, if the script has loaded torchvision's detectors. Calling again is harmless."""
    heads: Any = getattr(sys.modules.get("torchvision.models.detection.roi_heads"), "RoIHeads", None)
    sample = getattr(heads, "select_training_samples", None)
    if sample is None or hasattr(sample, _DONE):
        return

    @functools.wraps(sample)
    def sampled(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = sample(self, *args, **kwargs)
        sampler = self.fg_bg_sampler
        most = int(sampler.batch_size_per_image * sampler.positive_fraction)
        for labels in found[2]:
            masks.positive_at_most(labels, most)
        return found

    setattr(sampled, _DONE, True)
    heads.select_training_samples = sampled

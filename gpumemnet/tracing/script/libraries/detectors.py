"""torchvision's detectors: how many of the boxes that they sample for a training step can be positive.

Heads for masks and keypoints see the positive ones alone. Which they are the labels say, whose values a trace has not;
the sampler takes no more of them than `batch_size_per_image * positive_fraction` (of Mask R-CNN's 512 boxes 128).
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from gpumemnet.tracing.trace import masks

_DONE = "_rad_told"
"""Attribute of the method that stands in."""


def pretended() -> None:
    """Let the boxes' labels say it, if the script has loaded torchvision's detectors; again is no harm."""
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

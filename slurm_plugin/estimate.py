"""What a job needs: the estimate of its profile, or what its runs before really held.

This is where gpumemnet's estimators are met; said.py meets its readers. Nothing here opens a file.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib.metadata import version

from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators import activity, conformal
from gpumemnet.estimators.registry import ESTIMATORS
from gpumemnet.estimators.registry import estimate as gpumemnet_estimate
from gpumemnet.gpus import DEFAULT_GPU, Gpu, gpu_named
from gpumemnet.names import Family, Optimizer, Precision, Source
from gpumemnet.profile.record import VERSION as PROFILE_VERSION
from gpumemnet.profile.record import ModelProfile
from slurm_plugin.core.config import Config, GpuType
from slurm_plugin.core.errors import ConfigError, EstimateError
from slurm_plugin.core.models import Model, name_of
from slurm_plugin.core.peaks import bound_of
from slurm_plugin.core.records import Claims, MemoryEstimate
from slurm_plugin.core.risk import SHARES
from slurm_plugin.core.units import from_mib
from slurm_plugin.core.wire import profile_in
from slurm_plugin.said import directives_of

MAX_KEYS = 100_000
"""Of more kinds of jobs the ones that ran longest ago are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """How this site estimates.

    Attributes:
        name: One of gpumemnet's estimators.
        gpu: GPU name for the base; "" for the generic one.
        conv_base_bytes: Base of processes with convolutions, measured here; 0 takes that of `gpu`.
        base_bytes: Base of other processes, measured here; 0 takes that of `gpu`.
    """

    name: str = "ours"
    gpu: str = ""
    conv_base_bytes: int = 0
    base_bytes: int = 0

    @classmethod
    def from_config(cls, config: Config) -> Estimator:
        """Return how rad.toml says that this site estimates."""
        return cls(
            name=config.estimator,
            gpu=config.gpu,
            conv_base_bytes=from_mib(config.conv_base_mib),
            base_bytes=from_mib(config.base_mib),
        )

    def on(self, gpu: GpuType) -> Estimator:
        """Return how this site estimates for one of several types of GPUs.

        Args:
            gpu: What rad.toml says of the type; what it leaves out is the site's.
        """
        site = replace(self, conv_base_bytes=0, base_bytes=0) if gpu.gpu else self  # measured on another GPU
        return replace(
            site,
            gpu=gpu.gpu or site.gpu,
            conv_base_bytes=from_mib(gpu.conv_base_mib) or site.conv_base_bytes,
            base_bytes=from_mib(gpu.base_mib) or site.base_bytes,
        )

    def check(self, where: str = "") -> None:
        """Say now what would otherwise fail at each submission.

        Args:
            where: The table of rad.toml that names the GPU, with a dot behind it.

        Raises:
            ConfigError: rad.toml names an estimator or a GPU that gpumemnet does not have, or whose weights are not
                installed here: every need would be unknown, and every job alone on its GPU.
        """
        if self.name not in ESTIMATORS:
            raise ConfigError(
                f"rad.toml: estimator is {self.name!r}; it must be one of {', '.join(ESTIMATORS)}"
            )
        try:
            card = gpu_named(self.gpu or DEFAULT_GPU)
        except GpuMemNetError as exc:
            raise ConfigError(f"rad.toml: {where}gpu: {exc}") from exc
        try:
            gpumemnet_estimate(_smallest(Source.TORCHINFO), gpu=card, estimator=self.name)
        except GpuMemNetError as exc:
            raise ConfigError(f"rad.toml: estimator: {exc}") from exc

    def load(self) -> None:
        """Load code and weights now: from a cold disk they take longer than job_submit.lua waits for an answer."""
        for source in Source:
            self.of_profile(_smallest(source).to_text())

    def card(self) -> Gpu:
        """Return the type of GPU that estimates here are for, with the base that was measured here.

        Raises:
            GpuMemNetError: gpumemnet knows no such GPU.
        """
        card = gpu_named(self.gpu or DEFAULT_GPU)
        return replace(
            card,
            conv_base_bytes=self.conv_base_bytes or card.conv_base_bytes,
            base_bytes=self.base_bytes or card.base_bytes,
        )

    @property
    def made_for(self) -> str:
        """Return what changes whenever estimates do: what was learned of others says nothing of these."""
        bases = f"{self.conv_base_bytes}-{self.base_bytes}"
        return f"{version('rad-slurm')} {PROFILE_VERSION} {self.name} {self.gpu} {bases}"

    def of_profile(self, profile_text: str) -> MemoryEstimate | None:
        """Return the need of one process as shipped, from a profile; None if the text is no profile of this version.

        Args:
            profile_text: `ModelProfile.to_text()`.
        """
        return _estimate(profile_text, self)

    def estimate(self, claims: Claims) -> MemoryEstimate | None:
        """Return the need of one process; None if the claims do not tell it.

        What the user states outright wins over what the model says.
        """
        known = None if claims.profile is None else _estimate(claims.profile, self)
        if claims.memory_bytes is None:
            return known
        return MemoryEstimate(
            estimate_bytes=claims.memory_bytes,
            upper_bytes=claims.memory_bytes,
            confidence=None,  # it is booked because the user says so
            source="stated",
            smact=None if known is None else known.smact,
            busy=None if known is None else known.busy,
            profile_key=None if known is None else known.profile_key,
        )


class ObservedPeaks:
    """What jobs of this site really needed, in memory: the same user training the same model in the same way.

    The same way means as many processes on a GPU, too: what is seen is what they hold together.
    """

    def __init__(self) -> None:
        self._peaks: OrderedDict[tuple[int, str, int], tuple[int, float | None]] = OrderedDict()

    def add(
        self,
        user_id: int,
        profile_key: str,
        *,
        peak_bytes: int,
        smact: float | None = None,
        processes: int = 1,
    ) -> None:
        """Take in a run that ended well.

        Args:
            user_id: Its owner.
            profile_key: `ModelProfile.key`.
            peak_bytes: What it held of one GPU at its peak, all processes together; a run cut short by lack
                of memory must not be taken in.
            smact: What SM activity it would have alone; None if the run did not tell. A busier run counts at once, a
                calmer one by half: who pretends to be calm once gains little.
            processes: That shared each of its GPUs.
        """
        if peak_bytes <= 0 or processes < 1:
            return
        key = (user_id, profile_key, processes)
        highest_bytes, seen = self._peaks.pop(key, (0, None))
        if smact is not None and 0.0 <= smact <= 1.0:
            seen = smact if seen is None or smact > seen else (seen + smact) / 2
        self._peaks[key] = (max(peak_bytes, highest_bytes), seen)
        if len(self._peaks) > MAX_KEYS:
            self._peaks.popitem(last=False)

    def estimate(self, user_id: int, profile_key: str, *, processes: int = 1) -> MemoryEstimate | None:
        """Return the need of one process of a job that this user ran before; None if it is new.

        Args:
            user_id: The user.
            profile_key: `ModelProfile.key`.
            processes: That share a GPU; what they held together is divided evenly.
        """
        known = self._peaks.get((user_id, profile_key, processes))
        if known is None:
            return None
        peak_bytes, smact = -(-known[0] // processes), known[1]
        return MemoryEstimate(
            estimate_bytes=peak_bytes,
            upper_bytes=bound_of(peak_bytes),
            confidence=None,  # no runs were held out to say how often a peak with its margin holds
            source="history",
            smact=None if smact is None else round(smact / processes, 3),
            profile_key=profile_key,
        )


def model_of(script: str | None, comment: str, *, user_id: int, now_s: float) -> Model | None:
    """Return what a submission's profile stands for; None if it carries none, or names no model.

    Args:
        script: The start of the job script, or None.
        comment: The job's comment, with the profile that the login node put there.
        user_id: Who submitted it.
        now_s: Seconds since the epoch.

    Raises:
        EstimateError: What the user says is malformed.
    """
    text = profile_in(comment)
    directives = None if text is None else directives_of(script, "job script", comment)
    if text is None or directives is None or directives.model is None:
        return None
    try:
        profile = ModelProfile.from_text(text)
    except GpuMemNetError as exc:
        raise EstimateError(str(exc)) from exc
    return Model(
        profile=profile.key,
        user=user_id,
        time_s=round(now_s, 3),
        name=name_of(directives.model),
        family=profile.family.value,
        parameters=profile.parameters,
        batch_size=profile.batch_size,
        optimizer=profile.optimizer.value,
        precision=profile.precision.value,
        text=text,
    )


@lru_cache(maxsize=4096)
def model_in(profile_text: str) -> str:
    """Return what is the same for a model however it is trained; "" if the text is no profile of this version.

    Args:
        profile_text: `ModelProfile.to_text()`.
    """
    try:
        return ModelProfile.from_text(profile_text).model
    except GpuMemNetError:
        return ""


def _smallest(source: Source) -> ModelProfile:
    """Return a profile whose sizes are all 1."""
    names = {
        "family": Family.OTHER,
        "source": source,
        "optimizer": Optimizer.SGD,
        "precision": Precision.FP32,
    }
    return ModelProfile(**{each.name: names.get(each.name, 1) for each in fields(ModelProfile)})  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _estimate(profile_text: str, estimator: Estimator) -> MemoryEstimate | None:
    """Return the estimate of a profile; None if the text is no profile of this version."""
    try:
        profile = ModelProfile.from_text(profile_text)
        result = gpumemnet_estimate(profile, gpu=estimator.card(), estimator=estimator.name)
        alone = activity.estimate(profile)
    except GpuMemNetError:
        return None
    return MemoryEstimate(
        estimate_bytes=result.estimate_bytes,
        upper_bytes=result.upper_bytes,
        confidence=result.confidence,
        quantiles=tuple((share, result.quantile(share)) for share in SHARES),
        source=result.estimator,
        smact=None if alone is None else round(alone.smact.value, 3),
        busy=None if alone is None else round(alone.busy.value, 3),
        profile_key=profile.key,
        kind=conformal.kind(profile),
        warnings=result.warnings,
    )

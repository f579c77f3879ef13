"""Estimate a job's need from its profile, or from what its user states.

This is RAD's interface to gpumemnet's estimators; directives.py is the one to its readers. Nothing here opens a file.
"""

from __future__ import annotations

from functools import lru_cache

from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators import activity, conformal
from gpumemnet.estimators.registry import ESTIMATORS
from gpumemnet.estimators.registry import estimate as gpumemnet_estimate
from gpumemnet.gpus import DEFAULT_GPU, Gpu, gpu_named
from gpumemnet.names import Family, Optimizer, Precision, Source
from gpumemnet.profile.record import VERSION as PROFILE_VERSION
from gpumemnet.profile.record import ModelProfile
from gpumemnet.records import frozen, replace
from slurm_plugin.core.booking.confidence import SHARES
from slurm_plugin.core.config.load import Config, GpuType
from slurm_plugin.core.errors import EstimateError, SettingError
from slurm_plugin.core.history.models import Model, name_of
from slurm_plugin.core.records.submission import JobRequest, MemoryEstimate, UserDirectives
from slurm_plugin.core.units import from_mib
from slurm_plugin.directives import directives_of


@frozen
class Estimator:
    """The site's estimator settings.

    Attributes:
        name: One of gpumemnet's estimators.
        gpu: GPU name for the base; "" for the generic one.
        conv_base_bytes: Base of processes with convolutions, measured here; 0 takes that of `gpu`.
        base_bytes: Base of other processes, measured here; 0 takes that of `gpu`.
    """

    name: str = "rad"
    gpu: str = ""
    conv_base_bytes: int = 0
    base_bytes: int = 0

    @classmethod
    def from_config(cls, config: Config) -> Estimator:
        """Return the estimator settings in rad.toml."""
        return cls(
            name=config.estimator,
            gpu=config.gpu,
            conv_base_bytes=from_mib(config.conv_base_mib),
            base_bytes=from_mib(config.base_mib),
        )

    def on(self, gpu: GpuType) -> Estimator:
        """Return the estimator settings for one of several GPU types.

        Args:
            gpu: rad.toml's settings for the type; missing ones are the site's.
        """
        site = replace(self, conv_base_bytes=0, base_bytes=0) if gpu.gpu else self  # measured on another GPU
        return replace(
            site,
            gpu=gpu.gpu or site.gpu,
            conv_base_bytes=from_mib(gpu.conv_base_mib) or site.conv_base_bytes,
            base_bytes=from_mib(gpu.base_mib) or site.base_bytes,
        )

    def check(self, where: str = "") -> None:
        """Report now what would otherwise fail at each submission.

        Args:
            where: The table of rad.toml that names the GPU, with a dot behind it.

        Raises:
            SettingError: rad.toml names an estimator or a GPU that gpumemnet does not have, or whose weights are not
                installed here: every need would be unknown, and every job alone on its GPU.
        """
        if self.name not in ESTIMATORS:
            problem = f"estimator is {self.name!r}; it must be one of {', '.join(ESTIMATORS)}"
            raise SettingError("rad.toml", "estimator", problem)
        try:
            gpu_model = gpu_named(self.gpu or DEFAULT_GPU)
        except GpuMemNetError as exc:
            raise SettingError("rad.toml", f"{where}gpu", f"{where}gpu: {exc}") from exc
        try:
            gpumemnet_estimate(_smallest(Source.TORCHINFO), gpu=gpu_model, estimator=self.name)
        except GpuMemNetError as exc:
            raise SettingError("rad.toml", "estimator", f"estimator: {exc}") from exc

    def load(self) -> None:
        """Load code and weights now: from a cold disk this takes longer than job_submit.lua waits for an answer."""
        for source in Source:
            self.of_profile(_smallest(source).to_text())

    def gpu_model(self) -> Gpu:
        """Return the GPU type that estimates are for, with the base measured here.

        Raises:
            GpuMemNetError: gpumemnet does not know the GPU.
        """
        gpu_model = gpu_named(self.gpu or DEFAULT_GPU)
        return gpu_model._replace(
            conv_base_bytes=self.conv_base_bytes or gpu_model.conv_base_bytes,
            base_bytes=self.base_bytes or gpu_model.base_bytes,
        )

    @property
    def made_for(self) -> str:
        """Return a value that changes whenever estimates do; what was learned with another value does not apply."""
        from importlib.metadata import version  # slow, and not every program asks

        bases = f"{self.conv_base_bytes}-{self.base_bytes}"
        return f"{version('rad-slurm')} {PROFILE_VERSION} {self.name} {self.gpu} {bases}"

    def of_profile(self, profile_text: str) -> MemoryEstimate | None:
        """Return the need of one process as shipped, from a profile; None if the text is not a profile of this version.

        Args:
            profile_text: `ModelProfile.to_text()`.
        """
        return _estimate(profile_text, self)

    def estimate(self, stated: UserDirectives) -> MemoryEstimate | None:
        """Return the need of one process; None if the user's directives do not determine it.

        A value that the user states takes precedence over the model's.
        """
        known = None if stated.profile is None else _estimate(stated.profile, self)
        if stated.memory_bytes is None:
            return known
        return MemoryEstimate(
            estimate_bytes=stated.memory_bytes,
            upper_bytes=stated.memory_bytes,
            confidence=None,  # it is booked because the user requested it
            source="stated",
            smact=None if known is None else known.smact,
            busy=None if known is None else known.busy,
            profile_key=None if known is None else known.profile_key,
        )


def model_of(request: JobRequest, *, now_s: float) -> Model | None:
    """Return the model behind a submission's profile; None if it has no profile, or names no model.

    Args:
        request: The submission.
        now_s: Seconds since the epoch.

    Raises:
        EstimateError: The user's directives are malformed.
    """
    text = request.comment.profile
    if text is None:
        return None
    directives = directives_of(request.script, "job script", request.comment.words)
    if directives is None or directives.model is None:
        return None
    try:
        profile = ModelProfile.from_text(text)
    except GpuMemNetError as exc:
        raise EstimateError(str(exc)) from exc
    return Model(
        profile=profile.key,
        user=request.user_id,
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
    """Return what is the same for a model in all trainings; "" if the text is not a profile of this version.

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
    return ModelProfile(**{name: names.get(name, 1) for name in ModelProfile._fields})  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _estimate(profile_text: str, estimator: Estimator) -> MemoryEstimate | None:
    """Return the estimate of a profile; None if the text is not a profile of this version."""
    try:
        profile = ModelProfile.from_text(profile_text)
        result = gpumemnet_estimate(profile, gpu=estimator.gpu_model(), estimator=estimator.name)
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
    )

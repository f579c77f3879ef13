"""What every RAD process on a GPU node needs: configuration, clock, ledger and access to Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_plugin.core.clock import Clock, SystemClock
from slurm_plugin.core.comments.signed_comment import read_key
from slurm_plugin.core.config.load import Config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.ledger.job_file import JobFile
from slurm_plugin.core.ledger.store import LedgerStore, boot_id
from slurm_plugin.core.logs.hook_log import HookLog
from slurm_plugin.core.process.identity import PROC
from slurm_plugin.slurm.files.conf_files import devices_confined, find_slurm_conf
from slurm_plugin.slurm.node.hook_env import HookJob, owner_in

# An ordinary job starts without asking Slurm: the modules for that are loaded when they are needed.
if TYPE_CHECKING:
    from slurm_plugin.slurm.commands import SlurmCommands

SLURM_ANSWER_S = 2.0
"""Part of a hook's time for one query to a controller that should answer in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """This node.

    Attributes:
        config: rad.toml.
        clock: Time.
        store: The ledger.
        slurm: Access to Slurm, as the last resort.
        slurm_conf: SLURM_CONF of this node's slurmd, where known.
        confined: Whether cgroups let a job reach only the GPUs of its Slurm GPU indices.
        proc: Where /proc is.
    """

    config: Config
    clock: Clock
    store: LedgerStore
    slurm: Callable[[], SlurmCommands]
    slurm_conf: str | None
    confined: bool
    proc: Path = PROC

    @classmethod
    def here(cls, config: Config, env: Mapping[str, str], *, for_release: bool = False) -> Node:
        """Return the node that this process runs on.

        Args:
            config: rad.toml.
            env: The environment, for SLURM_CONF and, in a hook, its job.
            for_release: Do not read slurm.conf: it may lie on a file server that hangs, and a release needs nothing
                from it.
        """
        clock = SystemClock()
        slurm_conf = None if for_release else find_slurm_conf(config.paths.slurm_conf, env)

        def slurm() -> SlurmCommands:
            from slurm_plugin.slurm.commands import SlurmCommands

            return SlurmCommands(
                slurm_conf=str(slurm_conf or ""), timeout_s=SLURM_ANSWER_S, owners=owner_in(env)
            )

        return cls(
            config=config,
            clock=clock,
            store=LedgerStore(Path(config.paths.run), clock=clock, boot_id=boot_id()),
            slurm=slurm,
            slurm_conf=env.get("SLURM_CONF"),
            confined=devices_confined(slurm_conf),
        )

    @property
    def run(self) -> Path:
        """Return the folder of the node's state."""
        return Path(self.config.paths.run)

    def key(self) -> bytes | None:
        """Return the cluster's key; None if it cannot be read: then no note counts, and none is signed."""
        try:
            return read_key(Path(self.config.paths.key))
        except ConfigError:
            return None

    def job_file(self, job_id: int) -> JobFile:
        """Return the file that passes variables to a job's tasks."""
        return JobFile(self.run, job_id)

    def log(self, hook: str, job: HookJob, *, started_s: float) -> HookLog:
        """Return the log of a hook.

        Args:
            hook: "prolog" or "epilog".
            job: Its job.
            started_s: When it was started, on the monotonic clock.
        """
        return HookLog(
            self.config.paths.log,
            hook,
            job_id=job.job_id,
            restart=job.restart,
            clock=self.clock,
            start_s=started_s,
        )

    def manages(self, partition: str) -> bool:
        """Return whether jobs of a partition are placed by RAD; all others run unchanged."""
        settings = self.config.partition(partition)
        return settings is not None and settings.collocate

"""The errors that the project expects; anything else is a bug.

Adapters translate at the boundary (`raise DeviceError(...) from exc`), so no foreign exception reaches a decision.
The text of each error is one line that says what is wrong and, where someone can act, the fix.
"""

from __future__ import annotations


class RadError(Exception):
    """Base of every expected error."""


class ConfigError(RadError):
    """rad.toml is missing, unreadable or has an impossible value."""


class SettingError(ConfigError):
    """A key of rad.toml is unknown or has an impossible value.

    Attributes:
        key: The key with its table, "partition.gpu.policy".
        problem: The text after the file: the key, what is wrong and the fix.
    """

    def __init__(self, origin: str, key: str, problem: str) -> None:
        super().__init__(f"{origin}: {problem}")
        self.key, self.problem = key, problem


class WireError(RadError):
    """A message or signed booking from outside is malformed, too long or not RAD's."""


class EstimateError(RadError):
    """The GPU memory of a job cannot be estimated; the text names file, line and fix.

    Attributes:
        lines: One line for each error.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = lines


class DeviceError(RadError):
    """A GPU or its driver did not answer, or not in time."""


class LedgerError(RadError):
    """The allocations of a node cannot be read or written."""


class MpsError(RadError):
    """The MPS control daemon did not start, answer or stop."""


class SlurmError(RadError):
    """Slurm refused a command or did not answer in time."""


class CommandError(RadError):
    """A program could not be started, failed or ran out of time.

    Attributes:
        argv: The command.
        returncode: Its exit status; None if it did not start or was stopped at its time limit.
        output: The end of its output on both streams.
    """

    def __init__(self, argv: tuple[str, ...], returncode: int | None, output: str) -> None:
        ended = "did not finish in time" if returncode is None else f"exited {returncode}"
        last_line = output.strip().splitlines()[-1] if output.strip() else "no output"
        super().__init__(f"{' '.join(argv[:3])} {ended}: {last_line}")
        self.argv, self.returncode, self.output = argv, returncode, output

"""The choices of `mps_server` in one sentence each, for `rad install` and `rad doctor`."""

from __future__ import annotations

from slurm_plugin.core.records.submission import ServerScope

CHOICES: dict[ServerScope, str] = {
    "user": "jobs of different users take turns on a GPU, and a GPU fault ends jobs of its own user alone",
    "account": "jobs of one Slurm account run at once on a GPU, and a GPU fault ends the account's jobs there",
    "gpu": "all jobs run at once on a GPU, and a GPU fault ends the shared jobs of all users there",
}
"""What jobs get, and what a fault costs; the other jobs of the server run again."""


def others(chosen: ServerScope, *, accounts: bool) -> str:
    """Return what the other choices would bring.

    Args:
        chosen: The setting now.
        accounts: Whether Slurm enforces accounts; otherwise "account" is as "user".
    """
    left = [one for one in CHOICES if one != chosen and (accounts or one != "account")]
    return "; ".join(f'with "{one}" {CHOICES[one]}' for one in left)

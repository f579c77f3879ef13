"""Find the smallest MIG profile that is large enough for a need.

A profile's name states its share of the GPU in rounded gigabytes; an instance really has less. Recorded with
`nvidia-smi mig -lgip`, in GiB: A100 40 GB: 1g.5gb 4.75, 1g.10gb 9.62, 2g.10gb 9.75, 3g.20gb 19.62, 7g.40gb 39.50;
H200: 1g.18gb 16.00. The worst of these is 0.889 of the name's number.
"""

from __future__ import annotations

import re

from gpumemnet.records import frozen
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.core.units import GIB

USABLE_SHARE = 0.88
_PROFILE = re.compile(r"^(\d)g\.(\d{1,3})gb$")


@frozen
class MigProfile:
    """One size of GPU instance.

    Attributes:
        name: Type in gres.conf, e.g. "1g.10gb".
        slices: Compute slices, sevenths of a GPU.
        usable_bytes: Memory that a job can certainly use in it.
    """

    name: str
    slices: int
    usable_bytes: int


def parse_profiles(text: str) -> tuple[MigProfile, ...]:
    """Return the profiles in a list such as "1g.10gb 3g.40gb", smallest first.

    Raises:
        ConfigError: A word names no profile.
    """
    found = []
    for word in text.replace(",", " ").split():
        match = _PROFILE.match(word)
        if match is None:
            raise ConfigError(f"{word!r} is no MIG profile; write mig_profiles like 1g.10gb 3g.40gb")
        usable_bytes = int(int(match[2]) * GIB * USABLE_SHARE)
        found.append(MigProfile(name=word, slices=int(match[1]), usable_bytes=usable_bytes))
    return tuple(sorted(found, key=lambda profile: (profile.usable_bytes, profile.slices)))


def smallest_profile(need_bytes: int, profiles: tuple[MigProfile, ...]) -> MigProfile | None:
    """Return the smallest profile that is large enough for a need; None if none is.

    Args:
        need_bytes: Memory that a job needs.
        profiles: Profiles of the node, the smallest first.

    >>> smallest_profile(6 * GIB, parse_profiles("3g.40gb 1g.5gb 1g.10gb")).name
    '1g.10gb'
    """
    return next((profile for profile in profiles if profile.usable_bytes >= need_bytes), None)

"""Attention inside units of tokens, as in Hiera's first stages."""

from __future__ import annotations

from gpumemnet.summaries.graph.attention.site import AttentionSite, out_of
from gpumemnet.summaries.texts.records import Layer

_UNITS, _UNIT_TOKENS, _UNIT_HEAD = "MaskUnitAttention", 64, 96
"""Hiera's attention class, the initial tokens of a unit, and the head width of its smaller models."""


def in_units(layers: tuple[Layer, ...], sites: list[AttentionSite | None]) -> list[AttentionSite | None]:
    """Return which attention of a Hiera runs in units of 64 tokens, and a quarter of that after each pooling.

    These are its first two stages, and the block that leaves them; no fused form takes five dimensions. transformers'
    HieraMaskUnitAttention always materializes its scores, in the other stages as well.

    Args:
        layers: In running order.
        sites: The sites found in them.

    Returns:
        The same sites, with units for those of a Hiera.
    """
    first = 0
    found: list[AttentionSite | None] = []
    for at, site in enumerate(sites):
        if (
            site is not None
            and site.container.endswith(_UNITS)
            and len(out_of(layers[site.projections[0]])) == 3
        ):
            made = out_of(layers[site.projections[0]])
            tokens, width = made[1] or 1, (made[-1] or 3) // 3
            first = first or tokens
            left = _tokens(layers, sites[at + 1 : at + 2])
            by_hand = site.container != _UNITS
            if by_hand or 4 * tokens >= first:
                site = site._replace(
                    eager=True,
                    spelt_out=not by_hand,
                    keys=max(_UNIT_TOKENS * tokens // first, 1) if 4 * tokens >= first else None,
                    heads=max(width // _UNIT_HEAD, 1),
                    pooled=tokens // left if 0 < left < tokens else 1,
                )
        found.append(site)
    return found


def _tokens(layers: tuple[Layer, ...], following: list[AttentionSite | None]) -> int:
    """Return the number of tokens of the following attention; 0 if not shown."""
    for site in following:
        made = () if site is None else out_of(layers[site.projections[0]])
        return (made[1] or 0) if len(made) == 3 else 0
    return 0

"""Compare the rows of a summary with its totals, and report differences."""

from __future__ import annotations

from gpumemnet.names import Group, Source
from gpumemnet.summaries.texts import rows
from gpumemnet.summaries.texts.records import ModelSummary

MISSING_SHARE = 0.1
"""Share of parameters that may be in no row: containers' own ones in torchsummary. More indicates an error."""
EXTRA_SHARE = 0.01
"""Excess of the rows over the total that indicates double counting."""


def warnings(summary: ModelSummary) -> tuple[str, ...]:
    """Return one sentence for each difference between rows and totals.

    Args:
        summary: Output of `settle`: shared weights count once.
    """
    found = []
    if summary.format is Source.TORCHSUMMARY and any(
        not layer.params for layer in rows.of_group(summary.layers, Group.RNN)
    ):
        found.append(
            "torchsummary leaves out the weights of recurrent layers, so the estimate does, too;"
            " print it with torchinfo.summary(model, input_size=...)"
        )
    total = summary.total_params
    counted = sum(layer.params or 0 for layer in summary.layers)
    if not total:
        return tuple(found)
    if total - counted > MISSING_SHARE * total:
        found.append(
            f"its rows have {counted:,} of {total:,} parameters: the rest counts as weights,"
            " but its use is unknown; print all levels and save the whole table"
        )
    elif counted - total > EXTRA_SHARE * counted:
        found.append(
            f"its rows have {counted:,} parameters and its total is {total:,}: the rows are counted;"
            " print the summary again if lines were repeated or edited"
        )
    return tuple(found)

"""The options of rad-estimate, which predicts a training job's GPU memory and sbatch's answer before submission.

| exit status | means |
|---|---|
| 0 | fits: sbatch takes the job |
| 1 | a finding: sbatch refuses it, or it does not fit on one GPU of that type |
| 2 | usage: an option, a #RAD line or a file is wrong; a line names it and the fix |
| 3 | a bug in RAD: its traceback is in the file that the line names |
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gpumemnet.cli.invocation import Invocation
from gpumemnet.directives.values import DEFAULT_CONFIDENCE, LEAST_CONFIDENCE, MOST_CONFIDENCE
from gpumemnet.estimators.registry import DEFAULT, NAMES
from gpumemnet.gpus import DEFAULT_GPU
from gpumemnet.names import OPTIMIZERS, PRECISIONS

_COUNT = click.IntRange(1, 1 << 30)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  rad-estimate job.sh                       sbatch's message, and the booking of the job
  rad-estimate job.sh --ask                 also ask Slurm whether and when the job would start
  rad-estimate job.sh --options '-p big'    with options of sbatch
  rad-estimate model.txt --batch-size 64    a saved summary
  rad-estimate model.txt --largest          largest batch for a GPU, half and a quarter of it
  rad-estimate job.sh --sweep               compare batch sizes, precisions and checkpointing
  rad-estimate job.sh --compare --ask       compare shared partitions and start times
  rad-estimate job.sh --plot step.html      memory over one training step
  rad-estimate --save m.rad -- python train.py

\b
Exit status: 0 fits, 1 does not fit or is refused, 2 a wrong option or file, 3 an internal error.""",
)
@click.argument("summary", required=False)
@click.option("--batch-size", type=_COUNT, help="Samples per step and GPU; default: the summary's own.")
@click.option("--seq-len", type=_COUNT, help="Tokens per sample, for summaries that do not show it.")
@click.option("--optimizer", type=click.Choice([name.value for name in OPTIMIZERS]), help="Default: adam.")
@click.option("--precision", type=click.Choice([name.value for name in PRECISIONS]), help="Default: fp32.")
@click.option(
    "--gradient-checkpointing",
    is_flag=True,
    help="Recompute activations in backward instead of storing them.",
)
@click.option("--gpu", help=f"Type of GPU; default: from rad.toml, else {DEFAULT_GPU}.")
@click.option("--gpu-memory", help="Memory of one GPU, e.g. 24G; then --gpu may be any name.")
@click.option(
    "--estimator",
    type=click.Choice(NAMES),
    help=f"Estimator; default: from rad.toml, else {DEFAULT}. faketensor needs --module.",
)
@click.option(
    "--module",
    help="Trace a model instead of reading a summary: pkg.mod:function or file.py:function. Needs PyTorch.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    help="An input's shape: 128x3x224x224; --module: [name=]SHAPE[:dtype].",
)
@click.option(
    "--confidence",
    type=click.FloatRange(LEAST_CONFIDENCE, MOST_CONFIDENCE),
    help=f"Share of jobs for which the booking is large enough. Default: from rad.toml, else {DEFAULT_CONFIDENCE}.",
)
@click.option(
    "--config", type=click.Path(path_type=Path), help="rad.toml; default: $RAD_CONFIG, /etc/rad/rad.toml."
)
@click.option("--options", "typed", default="", help="Options of sbatch, e.g. '-p big --gpus=1'.")
@click.option(
    "--ask", is_flag=True, help="Also ask Slurm whether it accepts the job, and when it would start."
)
@click.option("--largest", is_flag=True, help="Largest batch size for a GPU, and for parts of it.")
@click.option("--sweep", is_flag=True, help="Compare batch sizes, precisions and checkpointing.")
@click.option("--compare", is_flag=True, help="Compare the cluster's partitions, or all known GPUs.")
@click.option(
    "--plot", help="Plot memory over one step: - for the terminal, or FILE.html, FILE.svg, FILE.png."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, also for an error.")
@click.option("--explain", is_flag=True, help="Show the parts of the estimate and its assumptions.")
@click.option("--sbatch", is_flag=True, help="Print the lines to add to the job script.")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="Save the profile of a traced script or --module, e.g. as m.rad.",
)
@click.version_option(package_name="rad-slurm")
@click.pass_obj
def command(invocation: Invocation | None, /, **options: Any) -> None:
    """Estimate the GPU memory of a training job, and show the message and booking that sbatch would give.

    SUMMARY is the saved text of torchinfo.summary(), torchsummary.summary(), print(model) or Keras model.summary(),
    a file that gpumemnet.save() wrote, or a job script with #RAD lines; - reads it from standard input.

    rad-estimate [OPTIONS] -- python train.py ... traces an unmodified training script on a simulated GPU until its
    optimizer has made two steps; nothing is trained. Its Python needs PyTorch.
    """
    from gpumemnet.cli import run  # heavy imports, which --help does not need

    status = run.run(invocation or Invocation(), **options)
    if status:
        sys.exit(status)

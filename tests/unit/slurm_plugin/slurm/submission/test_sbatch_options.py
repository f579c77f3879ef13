from __future__ import annotations

import pytest

from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.errors import SlurmError
from slurm_plugin.slurm.submission.job_desc import batch_desc
from slurm_plugin.slurm.submission.sbatch_options import options_of


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--gpus=1", {"gpus": "1"}),
        ("-G2 -p big", {"gpus": "2", "partition": "big"}),
        ("--gpus-per-n 1 --parti=x", {"gpus-per-node": "1", "partition": "x"}),
        ("--job-name='a b' --gres gpu:1 # --gpus=3", {"job-name": "a b", "gres": "gpu:1"}),
        ("--exclusive=user --gpus=1 --nice=5", {"gpus": "1"}),
        ("--exclusive -H", {"exclusive": "", "-H": ""}),
        ("hetjob", {"hetjob": ""}),
    ],
)
def test_a_line_of_a_script(line: str, options: dict[str, str]) -> None:
    found = options_of(f"#!/bin/sh\n#SBATCH {line}\ntrue\n", (), {})
    assert found == {name.lstrip("-"): value for name, value in options.items()}


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        ("#SBATCH --gpus=1 \\\n#SBATCH --mem=1G", {"gpus": "1", "mem": "1G"}),
        ("#SBATCH --tasks-per-node=1", {"ntasks-per-node": "1"}),
        ("#PBS -q a\n#SBATCH -p b", {"partition": "a"}),
        ("#SBATCH -p b --ignore-pbs\n#PBS -q a", {"partition": "b", "ignore-pbs": ""}),
        (
            "#PBS -N name\n#PBS -l nodes=1:ppn=2:gpus=1\n#PBS -l walltime=1:00:00",
            {"nodes": "1", "ntasks-per-node": "2", "ntasks": "2", "gres": "gpu:1"},
        ),
        ("#PBS -l naccelerators=1", {"gres": "gpu:1"}),
        ("#PBS -l select=1:ncpus=2:ngpus=1\n#PBS -W gres:gpu", {}),
        ("#BSUB -q gpu\n#BSUB -n 2", {"partition": "gpu", "ntasks": "2"}),
        ("true\n#PBS -q a", {}),
    ],
)
def test_lines_that_sbatch_reads_as_well(lines: str, options: dict[str, str]) -> None:
    """As Slurm 22.05.8 took them; tests/cluster/submission/test_dry_run.py submits them."""
    assert options_of(f"#!/bin/sh\n{lines}\ntrue\n", (), {}) == options


def test_what_is_typed_counts_before_variables_before_lines() -> None:
    script = "#!/bin/sh\n#SBATCH --gpus=1 -p a\n\n#SLURM -n3\ntrue\n#SBATCH --gpus=9\n"
    env = {"SBATCH_PARTITION": "b", "SBATCH_GPUS": "2", "SBATCH_GRES": ""}
    assert options_of(script, ("-pc",), env) == {"gpus": "2", "partition": "c", "ntasks": "3"}


@pytest.mark.parametrize("words", [("--gpu=1",), ("--no-such",), ("--gpus",), ("-Z",)])
def test_what_sbatch_does_not_know_is_reported(words: tuple[str, ...]) -> None:
    with pytest.raises(SlurmError, match="sbatch: "):
        options_of(None, words, {})
    with pytest.raises(SlurmError, match="line 2: #SBATCH: "):
        options_of(f"#!/bin/sh\n#SBATCH {' '.join(words)}\n", (), {})


def test_a_quote_that_is_not_closed_is_reported_with_its_line() -> None:
    with pytest.raises(SlurmError, match="line 1: #SBATCH: no closing quotation"):
        options_of("#SBATCH -J 'a\n", (), {})


def test_a_request_as_slurmctld_will_have_it() -> None:
    options = {
        "gpus": "a100:1",
        "cpus-per-gpu": "3",
        "gpu-bind": "none",
        "ntasks-per-node": "2",
        "nodes": "2-4",
    }
    request = request_from(batch_desc(options, comment="mine", user_id=7))
    assert [(item.type, item.count) for item in request.gres_per_job] == [("a100", 1)]
    assert (request.nodes, request.tasks, request.cpus_per_gpu, request.binds_gpus) == (4, 4, 3, True)
    assert request.gpu_only_option is None and request.comment.words == "mine" and not request.heterogeneous
    alone = request_from(batch_desc({"gpu-freq": "high", "hetjob": ""}, comment="", user_id=7))
    assert (alone.gpu_only_option, alone.heterogeneous) == ("--gpu-freq", True)


@pytest.mark.parametrize(
    ("typed", "env", "whole_nodes"),
    [
        (("--exclusive",), {}, True),
        (("--exclusive=user",), {}, False),
        ((), {"SBATCH_EXCLUSIVE": "exclusive"}, True),
        ((), {"SBATCH_EXCLUSIVE": "mcs"}, False),
        ((), {}, False),
    ],
)
def test_a_job_that_takes_whole_nodes_is_known(
    typed: tuple[str, ...], env: dict[str, str], whole_nodes: bool
) -> None:
    options = options_of("#!/bin/sh\n", ("--gpus=1", *typed), env)
    assert request_from(batch_desc(options, comment="", user_id=7)).whole_nodes is whole_nodes

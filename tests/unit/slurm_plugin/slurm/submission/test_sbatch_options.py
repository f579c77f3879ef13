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
        "gpus": "a100:4",
        "cpus-per-gpu": "3",
        "gpu-bind": "none",
        "ntasks-per-node": "2",
        "nodes": "2-4",
    }
    request = request_from(batch_desc(options, comment="mine", user_id=7))
    assert [(item.type, item.count) for item in request.gres_per_job] == [("a100", 4)]
    assert (request.nodes, request.tasks, request.cpus_per_gpu, request.binds_gpus) == (4, 4, 3, True)
    assert request.gpu_only_option is None and request.comment.words == "mine" and not request.heterogeneous
    alone = request_from(batch_desc({"gpu-freq": "high", "hetjob": ""}, comment="", user_id=7))
    assert (alone.gpu_only_option, alone.heterogeneous) == ("--gpu-freq", True)


@pytest.mark.parametrize(
    ("nodes", "fewest", "most"),
    [
        ("2", 2, 2),
        ("1-4", 1, 4),
        ("1,4", 1, 4),
        ("4,1", 1, 4),
        ("1-3,8", 1, 8),
        ("1-4:2", 1, 4),
        ("1,1", 1, 1),
        ("1k", 1024, 1024),
        ("many", None, None),
    ],
)
def test_counts_of_nodes(nodes: str, fewest: int | None, most: int | None) -> None:
    """As Slurm 24.11.5 and 26.05.5 took them; 22.05.8 refuses lists and steps."""
    desc = batch_desc({"gres": "gpu:1", "nodes": nodes}, comment="", user_id=7)
    assert (desc["min_nodes"], desc["max_nodes"]) == (fewest, most)


@pytest.mark.parametrize(
    ("typed", "tasks"),
    [
        ("-N1 --threads-per-core=2", 2),
        ("-N1 --cores-per-socket=4 --ntasks-per-socket=2", 4),
        ("-N1 --sockets-per-node=1 --cores-per-socket=4", 4),
        ("-B 1-2:4-8", 4),
        ("-B *:4:*", 4),
        ("--cores-per-socket=4", None),
        ("-N1-2 --cores-per-socket=4", None),
        ("-B 1:4 -n1", 1),
        ("-N1 -B 1:4 --ntasks-per-node=1", None),
        ("-N1", None),
    ],
)
def test_tasks_that_sbatch_counts_by_sockets_cores_and_threads(typed: str, tasks: int | None) -> None:
    """As Slurm 22.05.8 and 26.05.5 took them."""
    assert batch_desc(options_of(None, typed.split(), {}), comment="", user_id=7)["num_tasks"] == tasks


@pytest.mark.parametrize(
    ("typed", "most"), [("-N1-2 --gpus=1", 1), ("-N1-4 --gpus=a100:2", 2), ("-N1-2 --gres=gpu:1", 2)]
)
def test_a_job_has_no_more_nodes_than_gpus(typed: str, most: int) -> None:
    assert batch_desc(options_of(None, typed.split(), {}), comment="", user_id=7)["max_nodes"] == most


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ({"SBATCH_EXCLUSIVE": ""}, {"exclusive": ""}),
        ({"SBATCH_TRES_PER_TASK": "gres/gpu:1"}, {"tres-per-task": "gres/gpu:1"}),
        ({"SBATCH_TRES_BIND": "gres/gpu:none"}, {"tres-bind": "gres/gpu:none"}),
    ],
)
def test_variables_that_count_as_options(env: dict[str, str], options: dict[str, str]) -> None:
    assert options_of("#!/bin/sh\n", (), env) == options


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

"""`rad simulate` from outside: what it prints, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_plugin.admin.cli import main

TRACE = "arrival_s,workload,gpus,duration_min,mem_mib\n" + "".join(
    f"{n},vgg{n % 3},{1 + (n % 5 == 0)},{10 + n % 7},{2000 + 500 * (n % 9)}\n" for n in range(40)
)
PROMISED = {"makespan_s", "mean_completion_s", "mean_waiting_s", "crashes", "median_slowdown"}


def figures(tmp_path: Path, *options: str) -> dict[str, float]:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    size = ["--nodes", "1", "--gpus-per-node", "2", "--gpu-memory-mib", "80000"]
    result = CliRunner().invoke(main, ["simulate", str(trace), *size, "--json", *options])
    assert result.exit_code == 0, result.output
    found: dict[str, float] = json.loads(result.output)
    assert found.keys() >= PROMISED
    return found


def test_sharing_beats_a_gpu_each(tmp_path: Path) -> None:
    whole = figures(tmp_path, "--baseline", "whole")
    hand = figures(tmp_path, "--baseline", "hand")
    rads = figures(tmp_path)
    assert whole["median_slowdown"] == 1.0
    assert rads["makespan_s"] < whole["makespan_s"]
    assert hand["mean_waiting_s"] < whole["mean_waiting_s"]


def test_jobs_of_several_gpus_share_where_slurm_can_do_it(tmp_path: Path) -> None:
    """`rad install` has them share from Slurm 23.11 on, so that is what is simulated without a rad.toml."""
    apart = tmp_path / "rad.toml"
    apart.write_text(
        'default_partition = "gpu"\n[partition.gpu]\ngpu_memory_mib = 80000\nshards_per_gpu = 78\n'
    )
    rads, kept = figures(tmp_path), figures(tmp_path, "--config", str(apart))
    assert rads["makespan_s"] < kept["makespan_s"]
    old = figures(tmp_path, "--slurm", "22.05")
    assert old["mean_waiting_multi_gpu_s"] > rads["mean_waiting_multi_gpu_s"]


@pytest.mark.parametrize("without", ['sharing = "streams"', "[features]\nmps = false"])
def test_without_mps_jobs_take_turns_and_that_is_reported(tmp_path: Path, without: str) -> None:
    """By memory alone, so that as many share as under MPS."""
    rows = ["collocate = true", "gpu_memory_mib = 80000", "shards_per_gpu = 78", "compute_overcommit = 0.0"]
    found = []
    for more in ("", without):
        config = tmp_path / "rad.toml"
        config.write_text("\n".join(['default_partition = "gpu"', "[partition.gpu]", *rows, more]))
        found.append(figures(tmp_path, "--config", str(config)))
    under_mps, sliced = found
    assert sliced["median_slowdown"] > 1.1 * under_mps["median_slowdown"]


def test_the_policy_that_shares_nothing_is_the_baseline(tmp_path: Path) -> None:
    """With RAD's `exclusive` and nothing known, each job has a GPU: the same as Slurm alone."""
    rads = figures(tmp_path, "--policy", "exclusive", "--estimates", "none")
    whole = figures(tmp_path, "--baseline", "whole")
    assert rads["makespan_s"] == whole["makespan_s"]
    assert rads["mean_completion_s"] == whole["mean_completion_s"]


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = figures(tmp_path), figures(tmp_path)
    assert {**first, "simulated_in_s": 0} == {**second, "simulated_in_s": 0}


def test_people_read_what_was_left_out(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE + "900,large,1,9,90000\n")
    result = CliRunner().invoke(
        main, ["simulate", str(trace), "--gpus-per-node", "2", "--gpu-memory-mib", "80000"]
    )
    assert "left out                   1 larger than a GPU\n" in result.output


def test_the_rows_on_failures_are_in_plain_words(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    words = ["simulate", str(trace), "--gpus-per-node", "2", "--gpu-memory-mib", "80000"]
    text = CliRunner().invoke(main, words).output
    rows = {line[:26].rstrip(): line[27:] for line in text.splitlines()}
    found = json.loads(CliRunner().invoke(main, [*words, "--json"]).output)
    assert list(rows)[list(found).index("crashes") :][:7] == [
        "out of memory or stopped",
        "stopped by the guard",
        "ended within the booking",
        "rerun after that",
        "not rerun after that",
        "requeues",
        "jobs over their time limit",
    ]
    assert rows["out of memory or stopped"] == str(found["crashes"])
    assert len(rows) == len(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [("nonsense\n", "no column"), ("arrival_s,workload,gpus,duration_min\n0,x,9,1\n", "no job fits")],
)
def test_bad_input_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    result = CliRunner().invoke(main, ["simulate", str(trace), "--gpu-memory-mib", "80000"])
    assert result.exit_code not in (0, 3)
    assert words in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_release_that_is_unknown_to_rad_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    argv = ["simulate", str(tmp_path / "trace.csv"), "--gpu-memory-mib", "80000", "--slurm", "21.08"]
    result = CliRunner().invoke(main, argv)
    assert result.exit_code == 2
    assert "'21.08' is no Slurm from 22.05 to 26.05, such as 24.11" in result.output


def test_advice_from_accounting(tmp_path: Path) -> None:
    """Eight jobs of an hour on one GPU: with their peaks known they share it; without they take turns as before."""
    head = "JobID|JobName|User|Submit|Start|End|NNodes|AllocTRES|TRESUsageInMax\n"
    day = "2026-10-01T"
    jobs = "".join(
        f"{n}|train{n}|ann|{day}08:0{n}:00|{day}08:0{n}:00|{day}09:0{n}:00|1|gres/gpu=1|\n"
        f"{n}.batch|batch||{day}08:0{n}:00|{day}08:0{n}:00|{day}09:0{n}:00|1||gres/gpumem=3G\n"
        for n in range(8)
    )
    size = ["--gpus-per-node", "1", "--gpu-memory-mib", "80000"]
    for text, known in ((head + jobs, 8), (head + jobs.replace("gres/gpumem=3G", ""), 0)):
        (tmp_path / "jobs.txt").write_text(text)
        result = CliRunner().invoke(main, ["advise", str(tmp_path / "jobs.txt"), *size, "--json"])
        found = json.loads(result.output)
        assert (found["jobs"], found["known"]) == (8, known)
        gain = found["whole"]["makespan_s"] / found["shared"]["makespan_s"]
        assert gain > 1.2 if known else gain == 1.0
        shown = CliRunner().invoke(main, ["advise", str(tmp_path / "jobs.txt"), *size]).output
        assert f"{known} of 8 jobs have a known peak" in shown
        assert ("AccountingStorageTRES" in shown) == (known < 8)


def test_advice_takes_a_guess_and_says_what_it_left_out(tmp_path: Path) -> None:
    head = "JobID|JobName|User|Submit|Start|End|NNodes|AllocTRES\n"
    day = "2026-10-01T"
    jobs = "".join(
        f"{n}|train{n}|ann|{day}08:0{n}:00|{day}08:0{n}:00|{day}09:0{n}:00|1|gres/gpu=1\n" for n in range(8)
    )
    (tmp_path / "jobs.txt").write_text(
        f"{head}{jobs}9|cpu|ann|{day}08:00:00|{day}08:00:00|{day}09:00:00|1|cpu=1\n"
    )
    argv = ["advise", str(tmp_path / "jobs.txt"), "--gpus-per-node", "1", "--gpu-memory-mib", "80000"]
    guess = CliRunner().invoke(main, [*argv, "--assume-mib", "6000"]).output
    assert "e+" not in guess and all(len(line.split()) > 2 for line in guess.splitlines()[1:9])
    assert "assumed to need 6000 MiB (--assume-mib)" in guess and "Left out: 1 without GPUs." in guess
    found = json.loads(CliRunner().invoke(main, [*argv, "--assume-mib", "6000", "--json"]).output)
    hours = (found["whole"]["gpu_held_s"] - found["shared"]["gpu_held_s"]) / 3600
    assert found["saved"]["gpu_hours"] == pytest.approx(hours, abs=0.1) and hours > 0
    assert "--assume-mib" in CliRunner().invoke(main, argv).output


def test_an_old_slurm_puts_jobs_back_that_a_new_one_keeps_waiting(tmp_path: Path) -> None:
    new, old = figures(tmp_path), figures(tmp_path, "--slurm", "22.05")
    assert new["requeues"] == 0 < old["requeues"]


def test_advice_shows_what_slurms_backfill_costs(tmp_path: Path) -> None:
    """Jobs of two GPUs hold the node up for those behind them, unless they may be passed for a while."""
    rows = (f"{45 * n},vgg{n % 3},{1 + (n % 5 == 0)},{50 if n % 7 == 1 else 10},2000\n" for n in range(40))
    (tmp_path / "jobs.csv").write_text(TRACE.partition("\n")[0] + "\n" + "".join(rows))
    argv = ["advise", str(tmp_path / "jobs.csv"), "--gpus-per-node", "2", "--gpu-memory-mib", "80000"]
    found = json.loads(CliRunner().invoke(main, [*argv, "--json"]).output)
    hours = [found[way]["mean_completion_s"] / 3600 for way in ("passed", "shared")]
    assert hours[0] < 0.95 * hours[1]
    reported = f"mean completion would be {hours[0]:.3g} h instead of {hours[1]:.3g} h"
    shown = CliRunner().invoke(main, argv).output
    assert "bf_min_age_reserve=14400" in shown and reported in shown
    assert "as Slurm 26.05 counts" in shown
    assert "as Slurm 24.11 counts" in CliRunner().invoke(main, [*argv, "--slurm", "24.11.5"]).output
    has_it = [*argv, "--bf-min-age-reserve", "14400"]
    assert "bf_min_age_reserve" not in CliRunner().invoke(main, has_it).output
    same = json.loads(CliRunner().invoke(main, [*has_it, "--json"]).output)
    assert same["passed"] is None
    assert same["shared"]["mean_completion_s"] == found["passed"]["mean_completion_s"]


def test_where_backfill_holds_no_job_up_nothing_is_reported(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE.replace(",2,", ",1,"))
    argv = ["advise", str(tmp_path / "jobs.csv"), "--gpus-per-node", "2", "--gpu-memory-mib", "80000"]
    assert "bf_min_age_reserve" not in CliRunner().invoke(main, argv).output


def test_users_and_a_setting_from_the_command_line(tmp_path: Path) -> None:
    alone, apart = figures(tmp_path), figures(tmp_path, "--users", "6", "--seed", "1")
    shared = figures(tmp_path, "--users", "6", "--seed", "1", "--set", "mps_server=gpu")
    for found in (alone, apart, shared):
        del found["simulated_in_s"]
    assert shared == alone != apart


@pytest.mark.parametrize("change", ["mps_servers=gpu", "mps_server=group", "compute_overcommit=much"])
def test_a_wrong_setting_is_refused(tmp_path: Path, change: str) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    argv = ["simulate", str(tmp_path / "trace.csv"), "--gpu-memory-mib", "80000", "--set", change]
    result = CliRunner().invoke(main, argv)
    assert result.exit_code != 0
    assert "--set: " in result.output and change.partition("=")[0] in result.output


def test_advise_takes_users_and_accounts_from_sacct(tmp_path: Path) -> None:
    head = "JobID|JobName|User|Account|Submit|Start|End|NNodes|AllocTRES|TRESUsageInMax\n"
    found = []
    for users, scope in (("ann", "user"), ("ann bob cy", "user"), ("ann bob cy", "account")):
        names = users.split()
        rows = (
            f"{k}|vgg3|{names[k % len(names)]}|lab|2026-10-01T10:{k:02}:00|2026-10-01T11:00:00|"
            "2026-10-01T12:00:00|1|gres/gpu=1|gres/gpumem=4G\n"
            for k in range(20)
        )
        (tmp_path / "jobs.txt").write_text(head + "".join(rows))
        (tmp_path / "rad.toml").write_text(
            'default_partition = "gpu"\n[partition.gpu]\ncollocate = true\ngpu_memory_mib = 80000\n'
            f'mps_server = "{scope}"\n'
        )
        argv = ["advise", str(tmp_path / "jobs.txt"), "--gpu-memory-mib", "80000", "--gpus-per-node", "2"]
        result = CliRunner().invoke(main, [*argv, "--config", str(tmp_path / "rad.toml"), "--json"])
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.output))
    one, apart, account = (advice["shared"]["mean_completion_s"] for advice in found)
    assert apart > one == account
    assert [set(advice["servers"]) for advice in found] == [set(), {"account", "gpu"}, {"user", "gpu"}]
    assert found[1]["servers"]["gpu"]["mean_completion_s"] == one
    assert found[2]["servers"]["user"]["mean_completion_s"] == apart
    shown = CliRunner().invoke(main, [*argv, "--config", str(tmp_path / "rad.toml")]).output
    assert f'With mps_server = "user", mean completion would be {apart / 3600:.3g} h instead of' in shown

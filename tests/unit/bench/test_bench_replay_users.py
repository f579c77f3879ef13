"""Users in a replay: to which a trace's jobs are dealt out, what such runs are called, and that a report says it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "simulation"))

from paths import CHECKOUT
from replay.fault_cost import costs_s
from replay.options import name_of, run_parser
from replay.plan import plan
from replay.predict import predict
from replay.report.check import NEEDED
from replay.report.runs import read_runs
from replay.stage import Stage
from replay.users import USERS, accounts, dealt_of
from replay.wanted import argv_of
from replayed import _name

from slurm_plugin.simulate.traces.read import read_trace
from slurm_plugin.simulate.traces.users import dealt

ROWS = [f"{60 * k}.0,vgg3,1,20.0,900" for k in range(20)]
HEADER = "arrival_s,workload,gpus,duration_min,mem_mib"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n")
    return path


def options(trace: Path, *more: str) -> Namespace:
    return run_parser().parse_args(["OUT", "--trace", str(trace), "--compress", "100", *more])


def name_users(trace: Path) -> None:
    rows = (f"{row},{'ann' if k % 4 else 'bob'}" for k, row in enumerate(ROWS))
    trace.write_text("\n".join([f"{HEADER},user", *rows]) + "\n")


def test_jobs_are_dealt_out_evenly_by_seed(trace: Path) -> None:
    found = dealt(read_trace(trace), 6, 1)
    assert found.users == 6 and found.seed == 1
    assert sorted(Counter(found.of).values()) == [3, 3, 3, 3, 4, 4]
    assert found == dealt(read_trace(trace), 6, 1) != dealt(read_trace(trace), 6, 2)


def test_a_trace_without_users_has_six(trace: Path) -> None:
    assert dealt_of(options(trace)).users == USERS == len(accounts(options(trace)))
    assert len(set(accounts(options(trace)))) == USERS


def test_users_of_the_trace_count_unless_a_number_is_given(trace: Path) -> None:
    name_users(trace)
    found = dealt(read_trace(trace), None, 3)
    assert (found.users, found.seed, found.of[:5]) == (2, None, (1, 2, 2, 2, 1))
    assert dealt(read_trace(trace), 5, 3).users == 5
    assert name_of(options(trace)).endswith("c100-users2-r1")


def test_one_user_is_as_it_was(trace: Path) -> None:
    one = options(trace, "--users", "1", "--seed", "4")
    assert name_of(one) == "t-magm-rad-c100-r1"
    assert accounts(one) == ("nobody",)
    assert {job.user for job in plan(trace, compress=100, gpus=2)} == {1}
    assert dealt(read_trace(trace), 1, 4).seed is None


def test_a_job_has_the_same_user_in_a_replay_of_the_first_jobs(trace: Path) -> None:
    of = [job.user for job in plan(trace, compress=100, gpus=2, users=6, seed=2)]
    assert [job.user for job in plan(trace, compress=100, gpus=2, users=6, seed=2, first=7)] == of[:7]
    assert set(of) == set(range(1, 7))


def test_each_user_has_an_account_and_a_server_of_trainings(trace: Path) -> None:
    run = options(trace, "--users", "3")
    stage = Stage(run)
    jobs = plan(trace, compress=100, gpus=2, users=3)
    assert {stage.account(job) for job in jobs} == {"rad-replay-1", "rad-replay-2", "rad-replay-3"}
    assert len({stage.server(stage.account(job)) for job in jobs}) == 3


def test_users_and_seed_tell_runs_apart_and_reach_the_run(trace: Path) -> None:
    six, again = options(trace, "--users", "6"), options(trace, "--users", "6", "--seed", "1")
    assert name_of(six) == name_of(options(trace)) == "t-magm-rad-c100-users6-r1"
    assert name_of(again) == "t-magm-rad-c100-users6-seed1-r1"
    for run in (six, again, options(trace)):
        assert name_of(run_parser().parse_args(["OUT", *argv_of(run)])) == name_of(run)


def test_faults_come_from_every_third_job_of_the_first_user(trace: Path) -> None:
    jobs = plan(trace, compress=100, gpus=2, users=2, faulty=3)
    own = [job.faults for job in jobs if job.user == 1]
    assert own == [False, False, True] * 3 + [False]
    assert not any(job.faults for job in jobs if job.user != 1)
    assert not any(job.faults for job in plan(trace, compress=100, gpus=2, users=2))
    run = options(trace, "--users", "2", "--faulty", "3")
    assert name_of(run) == "t-magm-rad-c100-users2-faulty3-r1"
    assert name_of(run_parser().parse_args(["OUT", *argv_of(run)])) == name_of(run)


def test_slurm_accounts_are_named_where_they_decide(trace: Path) -> None:
    by_account = Stage(options(trace, "--set", "mps_server=account"))
    jobs = plan(trace, compress=100, gpus=2, users=6)
    named = {(job.user, *by_account.slurm_account(job)) for job in jobs}
    assert named == {(user, "lab1" if user <= 4 else "lab2") for user in range(1, 7)}
    assert Stage(options(trace)).slurm_account(jobs[0]) == ()


@pytest.mark.parametrize("count", ["0", "-1"])
def test_no_users_are_refused(trace: Path, count: str) -> None:
    with pytest.raises(SystemExit):
        options(trace, "--users", count)


def test_servers_that_take_turns_are_allowed_more_time(trace: Path) -> None:
    one, six = (predict(options(trace, "--users", count)) for count in ("1", "6"))
    assert six.took_s > one.took_s and six.makespan_s >= one.makespan_s
    whole = [predict(options(trace, "--policy", "whole", "--users", count)).took_s for count in ("1", "6")]
    assert whole[0] == whole[1], "a whole GPU is one user's"


def test_a_report_names_users_and_seed(tmp_path: Path) -> None:
    row = {
        "version": 1,
        "trace": "t",
        "policy": "magm",
        "estimates": "rad",
        "settings": {},
        "repetition": 1,
        "compress": 60.0,
        "cut": False,
        "stand_in": False,
        "figures": dict.fromkeys(NEEDED, 1.0),
        "jobs": [],
        "samples": {"times_s": [], "gpus": []},
        "machine": {"slurm": "24.11.5", "commit": "c"},
    }
    rows = {
        "old": {},
        "one": {"users": 1, "seed": None, "first": 1},
        "seed1": {"users": 6, "seed": 1},
        "named": {"users": 2, "seed": None},
    }
    for name, more in rows.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(row | more))
    labels = {name: read_runs([tmp_path / f"{name}.json"])[0].label for name in rows}
    assert labels == {
        "old": "magm rad",
        "one": "magm rad",
        "seed1": "magm rad users=6 seed=1",
        "named": "magm rad users=2",
    }
    assert _name(row | rows["seed1"]) == "t magm users=6 seed=1 r1" and _name(row) == "t magm r1"


def test_a_server_of_trainings_runs_each_and_shows_how_it_ended(tmp_path: Path) -> None:
    """A training ends with its server. One that took itself for its parent's orphan ended at once, without a word."""
    path, job = tmp_path / "socket", tmp_path / "job.json"
    job.write_text("{}")  # no training: its process says so, and status 1
    environment = dict(os.environ) | {"PYTHONPATH": f"{CHECKOUT / 'bench'}:{CHECKOUT}"}
    server = subprocess.Popen(
        [sys.executable, "-m", "replay.job.server", path, "--stand-in"], env=environment
    )
    try:
        end_s = time.monotonic() + 60.0
        while not path.is_socket():
            assert server.poll() is None and time.monotonic() < end_s
            time.sleep(0.02)
        done = subprocess.run(
            [sys.executable, "-IS", CHECKOUT / "bench" / "replay" / "job" / "client.py", job],
            env=environment | {"REPLAY_SERVER": str(path), "SLURM_JOB_ID": "7"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        server.kill()
        server.wait()
    assert done.returncode == 1 and "standin.py" in done.stderr, done.stderr


def completed(name: str, end_s: float, *, faults: bool = False) -> dict[str, object]:
    return {"name": name, "submit_s": 1.0, "runs": [{"end_s": 2.0}, {"end_s": end_s}], "faults": faults}


def test_a_fault_costs_a_job_what_its_last_run_ends_later_than_without() -> None:
    without = [[completed("a", 5.0), completed("b", 9.0)], [completed("a", 7.0), completed("b", 9.0)]]
    faulty = [completed("a", 16.0), completed("b", 8.0), completed("c", 3.0, faults=True)]
    assert costs_s(faulty, without) == {"a": 10.0, "b": -1.0}


def test_replays_with_faults_and_without_have_different_labels() -> None:
    replays = CHECKOUT / "docs" / "results" / "replay"
    name = "philly_t1-magm-rad-c180-share_multi_gpu=true-mps_server=gpu-pass4h-users6"
    runs = read_runs([replays / f"{name}{kind}-nccl-r1.json.xz" for kind in ("", "-faulty3")])
    assert runs[1].way == f"{runs[0].way} faulty=3"

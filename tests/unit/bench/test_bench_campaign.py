"""A campaign of replays: what it plans, what it refuses, and that it goes on after whatever ended it."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from replay.campaign import LOG, Campaign, attempts, lengths
from replay.options import run_parser
from replay.packing import packed
from replay.predict import Prediction, predict
from replay.stuck import PATIENCE_S, Patience, without_mps
from replay.wanted import Unready, argv_of, read_runs, refuse_unready

from lab.place import Place
from slurm_plugin.mps.daemon import LONGEST_RUN_FOLDER

RUNS = "--policy whole\n# a remark\n--policy magm\n--policy magm --repetition 2  # again\n"
TRACE = """arrival_s,workload,gpus,epochs,duration_min,mem_mib
0.0,vgg3,1,1,44.6,21864.0
120.0,xlnet_base_cased_2,2,8,59.04,9192.0
240.0,resnet18_cifar100_20e_1,1,20,9.8,788.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "runs.txt").write_text(RUNS)
    return tmp_path


def read_runs_again(run: Namespace) -> Namespace:
    return run_parser().parse_args(["OUT", *argv_of(run)])


def runs_of(folder: Path, *more: str) -> dict[str, Namespace]:
    common = ("--trace", str(folder / "t.csv"), "--compress", "100", "--users", "1", *more)
    return read_runs(folder / "runs.txt", common)


# --- what a run is called and requests


def test_a_word_may_come_without_quotes_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "runs.txt").write_text("--policy magm --set recovery=escalate --set mps_server=gpu\n")
    (options,) = runs_of(folder).values()
    assert options.set == [("recovery", '"escalate"'), ("mps_server", '"gpu"')]
    (folder / "runs.txt").write_text("--policy magm --set 'recovery=a b'\n")
    with pytest.raises(SystemExit):
        runs_of(folder)
    assert "recovery=a b" in capsys.readouterr().err


def test_how_gradients_are_exchanged_distinguishes_runs_and_what_is_expected(folder: Path) -> None:
    """XLNet next to another waits with each gradient that is handed over by itself."""
    (folder / "t.csv").write_text(
        TRACE.replace("xlnet_base_cased_2,2,8,59.04", "xlnet_large_cased_2,2,8,59.04")
    )
    share = "--policy magm --set share_multi_gpu=true"
    (folder / "runs.txt").write_text(f"{share}\n{share} --exchange nccl\n")
    one_by_one, by_nccl = runs_of(folder).items()
    assert by_nccl[0] == one_by_one[0].replace("-r1", "-nccl-r1")
    assert predict(by_nccl[1]).makespan_s < predict(one_by_one[1]).makespan_s
    assert read_runs_again(by_nccl[1]).exchange == "nccl"


# --- packing


def test_a_run_goes_into_the_first_call_with_space() -> None:
    found = packed({"a": 400, "b": 300, "c": 150, "d": 700}, rest_s=500, call_s=580, budget_s=1000)
    assert found.calls == (("a",), ("b", "c"))
    assert (found.too_long, found.no_time) == (("d",), ())


def test_the_least_wanted_runs_are_left_out_when_time_is_short() -> None:
    found = packed({"a": 400, "b": 300, "c": 100}, rest_s=580, call_s=580, budget_s=550)
    assert found.calls == (("a", "c"),) and found.no_time == ("b",)


@given(st.lists(st.floats(1, 700), max_size=12), st.floats(0, 580), st.just(580.0), st.floats(0, 3000))
def test_no_call_and_no_budget_is_overfilled(
    lengths_s: list[float], rest_s: float, call_s: float, budget_s: float
) -> None:
    took_s = {str(n): length_s for n, length_s in enumerate(lengths_s)}
    found = packed(took_s, rest_s=rest_s, call_s=call_s, budget_s=budget_s)
    sums = [sum(took_s[name] for name in call) for call in found.calls]
    assert sums[0] <= rest_s + 1e-6 and all(0 < each <= call_s + 1e-6 for each in sums[1:])
    assert sum(sums) <= budget_s + 1e-6
    placed = [name for call in found.calls for name in call]
    assert sorted((*placed, *found.too_long, *found.no_time)) == sorted(took_s)


# --- predicting


def test_a_run_is_predicted_with_the_settings_it_will_have(folder: Path) -> None:
    whole, shared, _ = runs_of(folder).values()
    alone_s = sum(minutes * gpus for minutes, gpus in ((44.6, 1), (59.04, 2), (9.8, 1))) * 60 / 100 / 2
    found = predict(whole)
    assert alone_s < found.makespan_s < 2.2 * alone_s
    assert found.took_s > found.makespan_s and 0 < found.start_up_share < 0.2
    assert predict(shared).makespan_s <= found.makespan_s
    both = predict(
        runs_of(folder, "--set", "share_multi_gpu=true")[  # Slurm puts all of them on two GPUs
            "t-magm-rad-c100-share_multi_gpu=true-r1"
        ]
    )
    assert both.makespan_s < predict(shared).makespan_s
    assert (
        predict(runs_of(folder, "--first", "1")["t-whole-c100-first1-r1"]).makespan_s < found.makespan_s / 2
    )


def test_jobs_of_unknown_need_are_predicted_as_they_will_share(folder: Path) -> None:
    named = "t-magm-none-c100-r1"
    unknown = predict(runs_of(folder, "--policy", "magm", "--estimates", "none")[named])
    assert unknown.makespan_s < predict(runs_of(folder)["t-whole-c100-r1"]).makespan_s


def test_what_was_measured_counts_more_than_what_was_predicted(folder: Path) -> None:
    runs = runs_of(folder)
    guess = Prediction(makespan_s=100, took_s=150, start_up_share=0.05)
    done = [{"run": "t-magm-rad-c100-r1", "outcome": "complete", "took_s": 200.0}]
    found = lengths(runs, dict.fromkeys(runs, guess), done)
    assert found == {
        "t-whole-c100-r1": 150,
        "t-magm-rad-c100-r1": pytest.approx(210),
        "t-magm-rad-c100-r2": pytest.approx(210),
    }


# --- refusing


def test_a_run_that_stands_there_twice_is_refused(folder: Path) -> None:
    (folder / "runs.txt").write_text("--policy whole\n--policy whole\n")
    with pytest.raises(Unready, match="stands there twice"):
        runs_of(folder)


def test_what_a_run_would_find_out_too_late_is_refused_before(folder: Path) -> None:
    """A workload whose steps were measured on another number of GPUs once ran for 156 s instead of 23."""
    texts = folder / "texts"
    texts.mkdir()
    known = {name: {"trains": name} for name in ("vgg3", "xlnet_base_cased_2", "resnet18_cifar100_1")}
    known["resnet18_cifar100_20e_1"] = {"trains": "resnet18_cifar100_1"}
    (texts / "workloads.json").write_text(json.dumps(known))
    refuse_unready(runs_of(folder), folder)

    (folder / "t.csv").write_text(TRACE.replace("vgg3,1", "vgg3,2").replace("xlnet_base_cased_2,2", "new,1"))
    with pytest.raises(
        Unready, match=r"never measured: new on 1 GPU\(s\), vgg3 on 2 GPU\(s\).*described.*new"
    ):
        refuse_unready(runs_of(folder), folder)
    refuse_unready(runs_of(folder, "--stand-in"), folder)

    (folder / "t.csv").write_text(TRACE)
    known["vgg3"] = {"trains": "UNet_8"}
    (texts / "workloads.json").write_text(json.dumps(known))
    with pytest.raises(Unready, match=r"another model stands in.*: vgg3$"):
        refuse_unready(runs_of(folder), folder)


# --- making


class Host:
    """A machine on which runs take their time at once, and may be cut off or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, took_s: Callable[[str], float]) -> None:
        self.now_s, self.folder, self.took_s = 1000.0, folder, took_s
        self.made: list[str] = []
        self.fails: set[str] = set()
        self.lost = 0
        monkeypatch.setattr("time.monotonic", lambda: self.now_s)
        monkeypatch.setattr("subprocess.run", self._run)

    def _run(self, argv: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        value = dict(pairwise(argv))
        name = f"t-{value['--policy']}-{'' if value['--policy'] == 'whole' else 'rad-'}c100-r{value['--repetition']}"
        self.made.append(name)
        limit_s, needed_s = float(value["--limit-s"]), self.took_s(name)
        self.now_s += min(limit_s, needed_s)
        if name in self.fails:
            return subprocess.CompletedProcess(argv, 1)
        cut = needed_s > limit_s
        figures = {"jobs": 20, "ended_well": 20 - self.lost}
        (self.folder / f"{name}.json").write_text(json.dumps({"cut": cut, "figures": figures}))
        return subprocess.CompletedProcess(argv, 3 if cut else 0)

    def call(self, *, call_s: float = 300, budget_s: float = 2000) -> int:
        options = Namespace(out=self.folder, call_s=call_s, budget_s=budget_s)
        return Campaign(options, runs_of(self.folder), self.now_s).make()


def outcomes(folder: Path) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in attempts(folder):
        found.setdefault(row["run"], []).append(row["outcome"])
    return found


WHOLE, FIRST, SECOND = "t-whole-c100-r1", "t-magm-rad-c100-r1", "t-magm-rad-c100-r2"


def test_calls_go_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    host = Host(monkeypatch, folder, lambda name: 90.0)
    assert host.call(call_s=240) == 3, "the third run does not fit into this call"
    assert host.made == [WHOLE, FIRST]
    assert host.call(call_s=240) == 0
    assert host.made == [WHOLE, FIRST, SECOND]
    assert host.call(call_s=240) == 0 and len(host.made) == 3, "nothing is made twice"


def test_a_run_that_is_cut_off_is_made_again_once_and_holds_up_no_job(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    host = Host(monkeypatch, folder, lambda name: 10_000.0 if name == WHOLE else 90.0)
    assert [host.call(), host.call(), host.call()] == [3, 3, 1]
    assert host.now_s == pytest.approx(1000 + 285 + 180 + 285), "each time it had a call of its own"
    assert host.made == [WHOLE, FIRST, SECOND, WHOLE]
    assert outcomes(folder)[WHOLE] == ["cut off", "cut off"]


def test_a_run_that_fails_stops_the_call_and_comes_last(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Where one run fails the next one would, too: that is for a person to look at, not to spend GPU time on."""
    host = Host(monkeypatch, folder, lambda name: 20.0)
    host.fails.add(WHOLE)
    assert [host.call(call_s=1000), host.call(call_s=1000), host.call(call_s=1000)] == [2, 2, 1]
    assert host.made == [WHOLE, FIRST, SECOND, WHOLE]


def test_a_run_that_lost_many_jobs_stops_the_call(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(monkeypatch, folder, lambda name: 20.0)
    host.lost = 3
    assert host.call() == 2 and host.made == [WHOLE]
    assert "3 of 20 jobs did not end well" in capsys.readouterr().err
    host.lost = 2
    assert host.call() == 0, "two of sixty once failed in every run, for a fault of their own"


def test_what_was_killed_in_the_middle_is_simply_made_again(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """The log's last line may be half a line, and a run without a result was never made."""
    host = Host(monkeypatch, folder, lambda name: 90.0)
    (folder / LOG).write_text('{"run": "t-whole-c100-r1", "outc')
    assert host.call(call_s=1000) == 0
    assert host.made == [WHOLE, FIRST, SECOND]


def test_without_time_nothing_is_begun(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    host = Host(monkeypatch, folder, lambda name: 90.0)
    assert host.call(budget_s=20) == 1 and host.made == []


# --- stuck


def job(state: str, **more: str) -> dict[str, str]:
    return {"JobName": "one", "JobState": state, "Restarts": "0", **more}


def lost_after(patience: Patience, seen: dict[int, dict[str, str]], *, active: bool = False) -> str:
    patience.lost(0.0, seen, active)
    assert patience.lost(PATIENCE_S - 1, seen, active) == ""
    return patience.lost(PATIENCE_S + 1, seen, active)


def test_a_run_whose_shared_jobs_have_no_mps_is_not_finished(tmp_path: Path) -> None:
    """One was, and its figures were nearly those of a server for each user."""
    log = tmp_path / "prolog.log"
    assert without_mps(log) == ""
    log.write_text("2026-11-28T07:21:32.447 job=1 after=143ms placed: booking shared: GPU-1 magm\n")
    assert without_mps(log) == ""
    line = "2026-11-28T07:21:32.444 job=2 after=141ms runs without MPS: /x/pipe: too long for a unix socket"
    log.write_text(f"{log.read_text()}{line}\n")
    assert without_mps(log) == line


def test_the_folder_of_a_replay_fits_the_sockets_of_mps() -> None:
    root = run_parser().parse_args(["out", "--trace", "t.csv"]).root
    assert len(str(Place(root=root / "c", venv=root).run / "n0")) <= LONGEST_RUN_FOLDER


def test_a_job_that_waits_next_to_idle_gpus_is_stuck_after_a_while() -> None:
    assert "one PENDING Resources" in lost_after(Patience(), {1: job("PENDING", Reason="Resources")})
    assert lost_after(Patience(), {1: job("RUNNING")}), "a training that hangs computes nothing"


@pytest.mark.parametrize(
    ("seen", "active"),
    [
        ({1: job("RUNNING")}, True),
        ({}, False),
        ({1: job("COMPLETED")}, False),
        ({1: job("PENDING", EligibleTime="2999-01-01T00:00:00")}, False),
    ],
    ids=["slow", "before the first job", "between jobs", "requeued"],
)
def test_what_is_slow_or_early_is_not_stuck(seen: dict[int, dict[str, str]], active: bool) -> None:
    assert lost_after(Patience(), seen, active=active) == ""


def test_a_held_job_without_a_time_waits_for_nothing() -> None:
    assert lost_after(Patience(), {1: job("PENDING", EligibleTime="Unknown")})


def test_any_change_is_a_sign_of_life() -> None:
    patience = Patience()
    for n in range(10):
        assert patience.lost(n * (PATIENCE_S - 1), {1: job("PENDING", Restarts=str(n))}, False) == ""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gpumemnet.profile.build import profile_summary
from gpumemnet.training import TrainingSetup
from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.comments.admin_comment import Note
from slurm_plugin.core.config.load import Features, parse_config
from slurm_plugin.core.errors import WireError
from slurm_plugin.core.history.observed import SEVERAL
from slurm_plugin.core.history.runs import Run
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.units import GIB
from slurm_plugin.estimate import Estimator
from slurm_plugin.radd.history.peaks import PeakHistory, run_from_note
from slurm_plugin.radd.submission.prepare import prepared
from slurm_plugin.radd.submission.submit import Submission

KEY = bytes(32)
SUMMARY = """\
----------------------------------------------------------------
        Layer (type)               Output Shape         Param #
================================================================
            Linear-1                 [-1, 4096]       4,198,400
              ReLU-2                 [-1, 4096]               0
            Linear-3                   [-1, 10]          40,970
================================================================
Total params: 4,239,370
Trainable params: 4,239,370
Non-trainable params: 0
----------------------------------------------------------------
"""
MODEL = profile_summary(SUMMARY, TrainingSetup(batch_size=64))
PROFILE = MODEL.to_text()


def submission(
    *,
    mode: str = "enforce",
    submit: bool = True,
    peaks: Any = None,
    compute_overcommit: float = 0.0,
    sharing: str = "mps",
) -> Submission:
    tree = {
        "mode": mode,
        "features": {"submit": submit},
        "default_partition": "gpu",
        "partition": {
            "gpu": {
                "collocate": True,
                "gpu_memory_mib": 40000,
                "compute_overcommit": compute_overcommit,
                "sharing": sharing,
            },
            "plain": {},
        },
    }
    config = parse_config(tree, origin="rad.toml")
    return Submission(config=config, key=KEY, estimator=Estimator(), peaks=peaks, whole_as_gpu={})


def answer(made: Submission | None = None, **message: Any) -> dict[str, Any]:
    made = made or submission()
    return made.answer(made.parsed({"v": 1, "user_id": 1000, "gres": "gres:gpu:1", **message}))


def test_a_profile_in_the_comment_becomes_a_signed_booking() -> None:
    reply = answer(comment=f"my words rad.profile:{PROFILE}")
    comment = reply["set"]["comment"]
    booking = signed_comment.read_signed_booking(comment, user_id=1000, key=KEY)
    assert booking is not None and booking.memory_bytes is not None and booking.estimate_bytes is not None
    assert booking.profile_key == MODEL.key
    assert reply["set"]["gres"] == f"shard:{booking.memory_bytes // GIB}"
    assert comment.startswith("my words rad2:shared:") and "rad.profile" not in comment
    assert len(reply["say"]) == 1


def test_what_is_stated_wins_over_what_the_model_says() -> None:
    script = "#!/bin/sh\n#RAD model=m.txt memory=7G\npython train.py\n"
    reply = answer(script=script, comment=f"rad.profile:{PROFILE}")
    assert reply["set"]["gres"] == "shard:7"


def test_a_comment_stands_in_place_of_the_script() -> None:
    reply = answer(script="#RAD memory=7G\n", comment="rad:memory=3G")
    assert reply["set"]["gres"] == "shard:3"


def test_a_job_in_a_reservation_of_gpus_shares_where_slurm_starts_shards_there() -> None:
    fields = {"comment": "rad:memory=4G", "reserves_parts": True}
    assert answer(**fields)["set"]["gres"] == "shard:4"
    kept = answer(replace(submission(), reserves_shards=False), **fields)
    assert "gres" not in kept["set"] and "gets a whole GPU" in kept["say"][0]


@pytest.mark.parametrize("said", ["rad:memory=4G", "rad:policy=exclusive"])
def test_a_slurmctld_that_knows_of_no_shards_yet_gets_no_request_for_them(said: str) -> None:
    fields = {"comment": said, "new_controller": True}
    assert answer(**fields)["set"]["gres"].startswith("shard:")
    kept = answer(replace(submission(), forgets_shards=True), **fields)
    assert "gres" not in kept["set"] and "has no shards yet" in kept["say"][0]
    later = answer(replace(submission(), forgets_shards=True), comment=said)
    assert later["set"]["gres"].startswith("shard:")


def test_rad_lines_behind_what_is_read_are_said_to_be_so() -> None:
    reply = answer(script="#!/bin/sh\n#RAD memory=7G\n", script_name="job.sh", script_goes_on=True)
    assert reply["set"]["gres"] == "shard:7"
    assert "RAD: job.sh: #RAD lines after the first 64 KiB are not read; move them to the top" in reply["say"]
    assert not answer(partition="plain", script_goes_on=True)["say"]


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            {"script": "#!/bin/sh\n#RAD memory=7G\n"},
            "RAD: partition plain is not managed; #RAD lines have no effect",
        ),
        (
            {"script": "#!/bin/sh\n#RAD memry=7G\n"},
            "RAD: partition plain is not managed; #RAD lines have no effect",
        ),
        (
            {"script": "#!/bin/sh\n#RAD model=m.txt\n"},
            "RAD: partition plain is not managed; #RAD lines have no",
        ),
        ({"comment": "rad:memory=7G"}, "RAD: partition plain is not managed; #RAD lines have no effect"),
        (
            {"comment": "rad:memory=7G", "partition": "plain,cpu"},
            "RAD: partitions plain,cpu are not managed;",
        ),
        (
            {"comment": "rad:memory=7G", "partition": "gpu,plain"},
            "RAD: the partitions gpu,plain treat #RAD diff",
        ),
        ({"comment": "my words"}, None),
        ({"script": "#!/bin/sh\n# a radical change\n"}, None),
        ({}, None),
    ],
)
def test_directives_in_an_unmanaged_partition_are_said_to_have_no_effect(
    said: dict[str, str], line: str | None
) -> None:
    reply = answer(**{"partition": "plain", **said})
    assert reply["set"] == {}
    assert [text[: len(line or "")] for text in reply["say"]] == ([] if line is None else [line])
    quiet = submission()
    observing = replace(quiet, config=replace(quiet.config, mode="observe"))
    assert answer(observing, **{"partition": "plain", **said})["say"] == []


def test_a_default_partition_that_is_not_known_is_not_called_unmanaged() -> None:
    made = submission()
    unknown = replace(made, config=replace(made.config, default_partition=""))
    assert answer(unknown, comment="rad:memory=7G")["say"] == []


def test_history_wins_over_the_estimate(tmp_path: Any) -> None:
    peaks = PeakHistory(tmp_path / "peaks.jsonl")
    peaks.record(Run(user_id=1000, profile_key=MODEL.key, peak_bytes=20 * GIB))
    peaks.refresh()
    made = submission(peaks=peaks)
    assert answer(made, comment=f"rad.profile:{PROFILE}")["set"]["gres"] == "shard:21"
    assert answer(made, comment=f"rad.profile:{PROFILE}", user_id=1001)["set"]["gres"] != "shard:21"
    assert answer(made, comment=f"rad:memory=2G rad.profile:{PROFILE}")["set"]["gres"] == "shard:2"


def test_a_short_run_that_ended_well_lowers_no_booking(tmp_path: Any) -> None:
    """Nor does any number of such runs, nor any run of another user."""
    peaks = PeakHistory(tmp_path / "peaks.jsonl")
    made = submission(peaks=peaks)

    def booked() -> Booking:
        comment = answer(made, comment=f"rad.profile:{PROFILE}")["set"]["comment"]
        booking = signed_comment.read_signed_booking(str(comment), user_id=1000, key=KEY)
        assert booking is not None
        return booking

    first = booked()
    long = Run(user_id=1001, profile_key=MODEL.key, peak_bytes=GIB >> 3, start_s=0.0, time_s=3600.0)
    for run in [replace(long, user_id=1000, time_s=3.0)] * 5 + [long] * 5:
        peaks.record(run)
    peaks.refresh()
    assert booked() == first and first.basis == "estimate"
    for _ in range(SEVERAL):
        peaks.record(replace(long, user_id=1000))
    peaks.refresh()
    assert booked().basis == "history" and (booked().estimate_bytes or 0) < (first.estimate_bytes or 0)


@pytest.mark.parametrize(
    ("fields", "gpus", "processes"),
    [
        ({"num_tasks": 2}, 1, 2),
        ({"script": "#RAD gpus=2\n"}, 1, 2),
        ({"num_tasks": 4, "gres": "gres:gpu:2"}, 2, 2),
        ({"num_tasks": 2, "gres": "gres:gpu:2"}, 2, 1),
        ({"num_tasks": 3, "gres": "gres:gpu:2"}, 2, 2),
        ({}, 1, 1),
    ],
    ids=str,
)
def test_processes_that_share_a_gpu_are_remembered_together(
    tmp_path: Any, fields: dict[str, Any], gpus: int, processes: int
) -> None:
    """Two ranks on a GPU use twice what one does: what both used is not booked once for each."""
    peaks = PeakHistory(tmp_path / "peaks.jsonl")
    peaks.refresh()
    made = submission(peaks=peaks)

    def booked(**message: Any) -> Booking:
        comment = answer(made, comment=f"rad.profile:{PROFILE}", **message)["set"]["comment"]
        booking = signed_comment.read_signed_booking(str(comment), user_id=1000, key=KEY)
        assert booking is not None
        return booking

    alone, first = booked(), booked(**fields)
    assert (first.gpus, first.processes) == (gpus, processes)
    note = Note(event="ended", peak_bytes=20 * GIB, smact=0.4, ran_s=100.0)
    run = run_from_note(note, first, made.config, user_id=1000, job_id=7, now_s=1000.0)
    assert run is not None and (run.processes, run.cap_bytes) == (processes, first.cap_bytes)
    peaks.record(run)
    peaks.refresh()
    again = booked(**fields)
    assert again.basis == "history" and again.smact == 0.4
    if again.kind == "shared":
        assert 20 * GIB <= (again.memory_bytes or 0) <= 22 * GIB
        assert again.estimate_bytes == 20 * GIB
    if processes > 1:
        assert booked() == alone, "one process alone is another job"


def test_what_was_seen_of_the_activity_wins_over_what_the_model_shows(tmp_path: Any) -> None:
    peaks = PeakHistory(tmp_path / "peaks.jsonl")
    peaks.refresh()
    peaks.record(Run(user_id=1000, profile_key=MODEL.key, peak_bytes=20 * GIB, smact=0.123))
    peaks.refresh()
    made = submission(peaks=peaks)
    for words in ("", "rad:memory=2G "):
        comment = str(answer(made, comment=f"{words}rad.profile:{PROFILE}")["set"]["comment"])
        booking = signed_comment.read_signed_booking(comment, user_id=1000, key=KEY)
        assert booking is not None and booking.smact == 0.123


def test_what_was_seen_of_the_activity_counts_in_full(tmp_path: Any) -> None:
    peaks = PeakHistory(tmp_path / "peaks.jsonl")
    made = submission(peaks=peaks, compute_overcommit=2.0)
    for smact, gres in ((0.5, "shard:10"), (0.9, "shard:18")):  # that part of 39 shards, over two
        peaks.record(Run(user_id=1000, profile_key=MODEL.key, peak_bytes=GIB, smact=smact))
        peaks.refresh()
        assert answer(made, comment=f"rad.profile:{PROFILE}")["set"]["gres"] == gres


def test_of_a_job_that_takes_turns_the_time_counts_with_its_waits(tmp_path: Any) -> None:
    reported = Estimator().of_profile(PROFILE)
    assert reported is not None and reported.smact is not None and reported.busy is not None
    peaks = PeakHistory(tmp_path / "peaks.jsonl")
    made = submission(peaks=peaks, compute_overcommit=0.2, sharing="streams")
    for seen, busy in ((None, 0.6 * reported.busy), (reported.smact / 3, reported.busy / 3)):
        if seen is not None:
            peaks.record(Run(user_id=1000, profile_key=MODEL.key, peak_bytes=GIB, smact=seen))
            peaks.refresh()
        shards = math.ceil(1.37 * busy / 0.2 * 39)
        assert 7 < shards < 38, "its memory is seven"
        assert answer(made, comment=f"rad.profile:{PROFILE}")["set"]["gres"] == f"shard:{shards}"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#RAD batch_size=0\n", ["job.sh:1", "batch_size"]),
        ("#!/bin/sh\n#RAD optimizer=adamm memory=3G\n", ["job.sh:2", "adam"]),
        ("true\n#RAD memory=3G\n", ["job.sh:2", "line 1"]),
        ("#RAD model=a.txt model=b.txt\n", ["job.sh:1", "twice"]),
        ("#RAD model=a.txt batch_size=2\n", ["job.sh:1", "no model summary was read"]),
        ("#RAD batch_size=64 optimizer=adam\n", ["job.sh:1", "no model= and no memory=", "need is unknown"]),
        ("\ufeff#!/bin/sh\r\n#RAD memry=3G\r\n", ["job.sh:2", "memory"]),
    ],
)
def test_a_wrong_directive_is_reported_in_one_line_and_costs_the_user_no_job(
    script: str, words: list[str]
) -> None:
    reply = answer(script=script, script_name="job.sh")
    assert reply["refuse"] is None
    assert reply["set"]["gres"] == "shard:39", "as the partition's default says"
    lines = [line for line in reply["say"] if "job.sh" in line]
    assert "the job gets a whole GPU" in reply["say"][-1]
    assert len(lines) == 1 and all(word in lines[0] for word in words), reply["say"]


def test_a_wrong_directive_next_to_all_shards_of_a_gpu_says_that_the_job_has_a_whole_one() -> None:
    """So srun sends it: its request is rewritten on the login node."""
    reply = answer(gres="shard:39", comment="rad:memory=3x")
    assert "the job gets a whole GPU" in reply["say"][-1]


@pytest.mark.parametrize("comment", ["rad.profile:p1.0.0", "rad.profile:" + PROFILE.replace("p4", "p1", 1)])
def test_a_profile_of_another_version_is_an_unknown_need(comment: str) -> None:
    assert answer(comment=comment)["set"]["gres"] == "shard:39"


def test_a_refusal_changes_nothing() -> None:
    reply = answer(comment="rad:memory=300G")
    assert reply["set"] == {} and "300.0 GiB" in reply["refuse"]


@pytest.mark.parametrize(
    "made", [submission(mode="observe"), submission(mode="off"), submission(submit=False)]
)
def test_observing_and_switched_off_change_nothing_and_say_nothing(made: Submission) -> None:
    reply = answer(made, script="#RAD batch_size=0\n", comment="rad:memory=300G")
    assert (reply["set"], reply["env"], reply["say"], reply["refuse"]) == ({}, {}, [], None)


def test_observing_logs_what_would_be_done_and_takes_the_profile_back() -> None:
    reply = answer(submission(mode="observe"), comment=f"mine rad.profile:{PROFILE}")
    assert reply["set"] == {"comment": "mine"}
    assert "decision=observe:-shared-shard:" in reply["log"] and "estimate_mib=" in reply["log"]


@pytest.mark.parametrize(
    "message",
    [
        {"user_id": None},
        {"user_id": "root"},
        {"gres": 7},
        {"num_tasks": -1},
        {"min_nodes": True},
        {"comment": []},
    ],
)
def test_fields_of_the_wrong_kind_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        answer(**message)


def test_the_log_line_has_every_figure() -> None:
    reply = answer(comment="rad:memory=12G")
    assert reply["log"] == (
        "user=1000 decision=shared gres=shard:12 kind=shared gpus=1 booked_mib=12288 "
        "estimate_mib=12288 upper_mib=12288 source=stated"
    )


def test_a_changed_request_only_marks_the_booking() -> None:
    """Slurm may yet refuse the change, or a part of it; what it gives is read when the job starts."""
    comment = answer(comment="mine rad:memory=7G,retry=no")["set"]["comment"]
    before = signed_comment.read_signed_booking(comment, user_id=1000, key=KEY)
    assert before is not None and not before.changed
    changed = submission().answer_change(request_from({"user_id": 1000, "comment": comment}))["set"][
        "comment"
    ]
    booking = signed_comment.read_signed_booking(changed, user_id=1000, key=KEY)
    assert booking == replace(before, changed=True)
    assert changed.startswith("mine rad:memory=7G,retry=no rad2:")


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"gres": "gres:gpu:1,gres:nvme:2"}, {"gres": "nvme:2,shard:39"}),
        ({"tres_per_job": "gres:gpu:1"}, {"gres": "shard:39", "tres_per_job": ""}),
        ({"tres_per_task": "gres:gpu:1"}, {"gres": "shard:39", "tres_per_task": ""}),
        ({"gres": "gres:gpu:2"}, {}),
        ({"gres": "gres:shard:3"}, {}),
    ],
)
def test_a_shared_job_that_names_one_gpu_gets_all_of_it(
    named: dict[str, str], expected: dict[str, str]
) -> None:
    comment = answer(comment="rad:memory=7G")["set"]["comment"]
    message = {"user_id": 1000, "partition": "gpu", "comment": comment, **named}
    changed = submission().answer_change(request_from(message))["set"]
    booking = signed_comment.read_signed_booking(changed.pop("comment"), user_id=1000, key=KEY)
    assert booking is not None and booking.changed
    assert changed == expected


@pytest.mark.parametrize(
    ("partition", "named", "expected"),
    [
        ("big", {"gres": "gres:gpu:1"}, {"gres": "shard:78"}),
        ("big", {"tres_per_job": "gres:gpu:1"}, {"gres": "shard:78", "tres_per_job": ""}),
        ("big", {}, {}),
        ("gpu", {"gres": "gres:gpu:1"}, {}),
        ("plain", {"gres": "gres:gpu:1"}, {}),
    ],
)
def test_a_whole_gpu_named_in_another_partition_is_one_of_that_partition(
    partition: str, named: dict[str, str], expected: dict[str, str]
) -> None:
    """The shim keeps the shards that a job has for its GPU, which are as many as a GPU of its partition has."""
    made = submission()
    sizes = {"collocate": True, "gpu_memory_mib": 80000}
    tree = {"partition": {"gpu": {"collocate": True, "gpu_memory_mib": 40000}, "big": sizes, "plain": {}}}
    made = replace(made, config=parse_config({**tree, "default_partition": "gpu"}, origin="rad.toml"))
    comment = answer(made, comment="rad:policy=exclusive")["set"]["comment"]
    message = {"user_id": 1000, "partition": partition, "comment": comment, **named}
    changed = made.answer_change(request_from(message))["set"]
    assert "changed=1" in changed.pop("comment")
    assert changed == expected


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"tres_per_job": "gres/gpu:2"}, {"gres": "gpu:2", "tres_per_job": ""}),
        ({"tres_per_task": "cpu:2,gres/gpu:a100:2"}, {"gres": "gpu:a100:2", "tres_per_task": "cpu:2"}),
        ({"partition": "plain", "tres_per_job": "gres/gpu:1"}, {"gres": "gpu:1", "tres_per_job": ""}),
        ({"gres": "gres/gpu:2", "min_nodes": 2}, {}),
        ({"gres": "gres/shard:3"}, {}),
    ],
)
def test_a_shared_job_may_name_other_gpus_where_slurm_takes_them(
    named: dict[str, Any], expected: dict[str, str]
) -> None:
    """Slurm 24.11.5 and 26.05.5 refuse GPUs by job or task of a job that has shards by node."""
    made = replace(submission(), gpu_after_shards=True)
    comment = answer(comment="rad:memory=7G")["set"]["comment"]
    message = {"user_id": 1000, "partition": "gpu", "comment": comment, **named}
    changed = made.answer_change(request_from(message))["set"]
    assert "changed=1" in changed.pop("comment")
    assert changed == expected


def test_a_forged_booking_is_not_signed() -> None:
    comment = "rad2:shared:gpus=1:mem=1024:try=0:retry=1:0123456789abcdef"
    message = {"user_id": 1000, "partition": "gpu", "gres": "gres:shard:9", "comment": comment}
    assert submission().answer_change(request_from(message))["set"] == {}


@pytest.mark.parametrize(
    "gres", ["gres:gpu:1\x1b[2J", "gres:gpu:\u202ea100:1", "gres:gpu:" + "x" * 3000 + ":1"]
)
def test_no_line_for_the_user_moves_a_terminal_or_fills_it(gres: str) -> None:
    reply = answer(gres=gres, comment="rad:memory=4G")
    reported = [*reply["say"], reply["refuse"] or ""]
    assert any(reported) and all(line.isprintable() and len(line) <= 500 for line in reported)


@pytest.mark.parametrize(("history", "source"), [(True, "history"), (False, "estimate")])
def test_earlier_runs_count_only_where_history_is_on(tmp_path, history: bool, source: str) -> None:
    peaks = PeakHistory(tmp_path / "peaks.jsonl")
    peaks.record(Run(user_id=1000, profile_key=MODEL.key, peak_bytes=20 * GIB))
    peaks.refresh()
    config = replace(submission().config, features=Features(history=history))
    made, _ = prepared(config, (24, 11, 5), key=KEY, peaks=peaks)
    comment = answer(made, comment=f"rad.profile:{PROFILE}")["set"]["comment"]
    booking = signed_comment.read_signed_booking(comment, user_id=1000, key=KEY)
    assert booking is not None and booking.basis == source

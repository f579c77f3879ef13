from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpumemnet.cli.answer import for_summary
from gpumemnet.directives.parse import parse_script
from gpumemnet.errors import SetupError, SummaryError
from gpumemnet.estimators.registry import estimate
from gpumemnet.names import Family, Optimizer, Precision, Source
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.profile.record import MAX_TEXT, ModelProfile
from gpumemnet.tracing.saved.record import MAX_CHARACTERS, SavedProfile, write
from gpumemnet.training import TrainingSetup
from gpumemnet.units import MIB

ZEROS = dict.fromkeys(ModelProfile._fields, 0)


def profile(batch_size: int, **changes: object) -> ModelProfile:
    reported = {
        "family": Family.CNN,
        "source": Source.TRACE,
        "optimizer": Optimizer.ADAMW,
        "precision": Precision.AMP,
        "gpus": 1,
        "batch_size": batch_size,
        "parameters": 1000,
        "parameter_bytes": 4000,
        "saved_bytes": batch_size * MIB,
        "reserved_bytes": (100 + 3 * batch_size) * MIB,
        "convs": 1,
    }
    return ModelProfile(**(ZEROS | reported | changes))


SAVED = SavedProfile(
    profiles=tuple(profile(size) for size in (32, 64, 128)),
    batch_size=64,
    model="Net",
    inputs=("64x3x32x32:float32",),
    versions={"torch": "2.13.0"},
    warnings=("no loss was given: cross entropy of the output is assumed",),
)
BY_COMMAND = replace(SAVED, command=("python", "train.py", "--lr", "1e-3", "a b"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "m.rad"
    path.write_text(SAVED.to_text())
    return str(path)


def profile_with(file: str, words: str) -> ModelProfile:
    said = parse_script(f"#!/bin/sh\n#RAD model={file} {words}\n", "job.sh")
    assert said is not None
    return profile_with_warnings(file, said.setup)[0]


def test_what_is_written_is_read() -> None:
    assert SavedProfile.from_text(SAVED.to_text(), path="m.rad") == SAVED
    assert SavedProfile.from_text(BY_COMMAND.to_text(), path="m.rad") == BY_COMMAND


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write(SAVED, tmp_path / "m.rad")
    assert (tmp_path / "m.rad").read_text() == SAVED.to_text()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write(SAVED, tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "m.rad"]


def test_a_person_can_read_it() -> None:
    tree = json.loads(SAVED.to_text())
    assert (tree["model"], tree["batch_size"], tree["profiles"][1]["optimizer"]) == ("Net", 64, "adamw")
    assert "hidden_bytes" not in tree["profiles"][1]  # zeros are left out


def test_a_file_of_several_ranks_is_of_as_many_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    """NCCL is counted for them: that a job says nothing does not make it one of a single process."""
    path = tmp_path / "m.rad"
    path.write_text(replace(BY_COMMAND, profiles=(profile(64, gpus=2),)).to_text())
    assert profile_with(str(path), "").gpus == profile_with_warnings(str(path), TrainingSetup())[0].gpus == 2
    assert (profile_with(str(path), "gpus=1").gpus, profile_with(str(path), "gpus=4").gpus) == (1, 4)


def test_a_file_of_one_process_gets_the_copy_that_several_send(tmp_path: Path) -> None:
    path = tmp_path / "m.rad"
    path.write_text(BY_COMMAND.to_text())
    one, four = profile_with(str(path), ""), profile_with(str(path), "gpus=4")
    for name in ("gradient_bytes", "allocated_bytes", "reserved_bytes"):
        assert getattr(four, name) - getattr(one, name) == one.parameter_bytes > 0
    setup = TrainingSetup(gpus=4, stated=frozenset({"gpus"}))
    assert any("torchrun" in warning for warning in profile_with_warnings(str(path), setup)[1])


def test_ranks_that_share_a_model_are_not_fewer_than_they_were(tmp_path: Path) -> None:
    """Each of fewer ranks would hold more of it than the file says; more ranks hold less."""
    path = tmp_path / "m.rad"
    divided = replace(BY_COMMAND, profiles=(profile(64, gpus=4),), shards=4)
    path.write_text(divided.to_text())
    assert SavedProfile.from_text(path.read_text(), path="m.rad") == divided
    with pytest.raises(SummaryError, match=r"for 4 ranks that share the model \(FSDP\), not 2.*with ranks=2"):
        profile_with(str(path), "gpus=2")
    assert profile_with(str(path), "gpus=8").reserved_bytes == divided.profiles[0].reserved_bytes
    (warning,) = (w for w in profile_with_warnings(str(path), TrainingSetup())[1] if "FSDP" in w)
    assert warning == "its 4 ranks share the model (FSDP): start no fewer"


def test_what_travels_fits_a_comment(file: str) -> None:
    huge = profile(128, reserved_bytes=1 << 44, saved_bytes=1 << 44, parameters=1 << 41)
    assert len(huge.to_text()) <= MAX_TEXT
    assert ModelProfile.from_text(profile_with(file, "").to_text()) == SAVED.profiles[1]


def test_what_is_not_said_is_as_in_the_file(file: str) -> None:
    assert profile_with(file, "") == SAVED.profiles[1]
    assert profile_with(file, "optimizer=adamw precision=amp batch_size=128") == SAVED.profiles[2]


def test_between_two_batch_sizes_is_the_straight_line(file: str) -> None:
    found, warnings = profile_with_warnings(file, TrainingSetup(batch_size=96))
    assert found == SAVED.profiles[1]._replace(batch_size=96, saved_bytes=96 * MIB, reserved_bytes=388 * MIB)
    assert warnings[-1] == "batch_size=96 lies between those that were traced"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("optimizer=sgd", "made with optimizer=adamw, not sgd"),
        ("precision=fp32", "made with precision=amp, not fp32"),
        ("gradient_checkpointing=yes", "made with gradient_checkpointing=no, not yes"),
        ("seq_len=128", "made with seq_len=0, not 128"),
        ("batch_size=16", "made for batch_size=32 to 128, not 16"),
        ("batch_size=129", "made for batch_size=32 to 128, not 129"),
    ],
)
@pytest.mark.parametrize("saved", [SAVED, BY_COMMAND], ids=["call", "command"])
def test_another_training_is_answered_with_what_makes_the_right_file(
    saved: SavedProfile, words: str, problem: str, file: str
) -> None:
    Path(file).write_text(saved.to_text())
    with pytest.raises(SummaryError) as caught:
        profile_with(file, words)
    assert problem in str(caught.value)
    fix = caught.value.fix
    if saved.command:
        setting = words.split()[0]
        assert fix == (
            f"let the script train with {setting}, "
            f"then: rad-estimate --save {file} -- python train.py --lr 1e-3 'a b'"
        )
    else:
        assert "gpumemnet.save(model, inputs" in fix
    assert "\n" not in str(caught.value)


def test_a_saved_profile_that_says_no_is_not_the_default(file: str) -> None:
    """Checkpointing stated as off agrees with a file made without it."""
    assert profile_with(file, "gradient_checkpointing=no") == SAVED.profiles[1]


def test_the_estimate_is_base_and_what_the_allocator_reserved(file: str) -> None:
    found, warnings = for_summary(file, TrainingSetup(), gpu="h200")
    assert warnings == SAVED.warnings
    assert (found.estimator, found.activity, found.confidence) == ("trace", None, None)
    assert found.estimate_bytes - found.breakdown_bytes["base"] == SAVED.profiles[1].reserved_bytes
    assert sum(found.breakdown_bytes.values()) == found.estimate_bytes < found.upper_bytes


def test_quantiles_of_a_trace_are_its_own_and_rise_to_the_bound(file: str) -> None:
    found, _ = for_summary(file, TrainingSetup(), gpu="h200")
    booked = [found.quantile(share) for share in (0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99)]
    assert booked == sorted(set(booked))
    assert (booked[0], booked[-1]) == (found.estimate_bytes, found.upper_bytes)
    # What nine jobs in ten need is nearer to the estimate than a line from there to the bound.
    assert booked[2] - booked[0] < (booked[-1] - booked[0]) / 2


def test_radd_answers_for_a_trace_whatever_estimator_the_site_has_chosen() -> None:
    answers = {estimate(SAVED.profiles[0], estimator=name).estimator for name in ("rad", "horus", "boosted")}
    assert answers == {"trace"}


def test_an_estimator_of_texts_refuses_a_trace(file: str) -> None:
    with pytest.raises(SetupError, match="horus reads a model summary, not a saved trace"):
        for_summary(file, TrainingSetup(), gpu="h200", estimator="horus")


def changed(**changes: object) -> str:
    return json.dumps(json.loads(SAVED.to_text()) | changes)


def changed_profile(**changes: object) -> str:
    tree = json.loads(SAVED.to_text())
    tree["profiles"][0] |= changes
    return json.dumps(tree)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("{}", "not a saved profile"),
        ('{"level": "info", "msg": "Net()"}', "save the text of torchinfo.summary(), or trace it: "),
        ('{"model_type": "gpt2"}', "rad-estimate --save m.rad --module hf:"),
        ("[" * 10_000, "not JSON"),
        (changed(version=2), "made by another version"),
        (changed(profiles=[]), "no list of 1 to 8 profiles"),
        (changed(profiles=[7]), "a profile is no object"),
        (changed(batch_size=7), "its batch sizes contradict each other"),
        (changed(batch_size=[64]), "its batch sizes contradict each other"),
        (changed(model="two\nlines"), "model contains an invalid line"),
        (changed(warnings=["\x1b[2J"]), "warnings contains an invalid line"),
        (changed(command="python"), "command is no list"),
        (changed(versions=[]), "versions is no object"),
        (changed_profile(optimizer="lion"), "optimizer is unknown"),
        (changed_profile(optimizer=[]), "optimizer is unknown"),
        (changed_profile(reserved_bytes=-1), "reserved_bytes is no possible number"),
        (changed_profile(reserved_bytes=1.5), "reserved_bytes is no possible number"),
        (changed_profile(reserved_bytes=True), "reserved_bytes is no possible number"),
        (changed_profile(reserved_bytes=1 << 60), "reserved_bytes is no possible number"),
        (changed_profile(reserved_bytes=0), "describes no training"),
        (changed_profile(favourite=1), "an unknown number"),
        (changed_profile(precision="fp32"), "of different trainings"),
        (SAVED.to_text().replace('"batch_size": 64', '"batch_size": NaN', 1), "not JSON"),
        ("{" + " " * MAX_CHARACTERS, "too large"),
    ],
)
def test_what_was_not_written_here_is_refused_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(SummaryError) as caught:
        SavedProfile.from_text(text, path="m.rad")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_submission_adds_it_to_the_comment_and_radd_books_it(file: str) -> None:
    """The way of `#RAD model=m.rad`: read as the user on the login node, a text in the comment, evaluated by radd."""
    from slurm_plugin.core.records.submission import UserDirectives
    from slurm_plugin.directives import profile_of
    from slurm_plugin.estimate import Estimator

    said = parse_script(f"#!/bin/sh\n#RAD model={Path(file).name} batch_size=128\n", "job.sh")
    assert said is not None
    text, _ = profile_of(said, (Path(file).parent,)) or ("", ())
    booked = Estimator().estimate(UserDirectives(profile=text))
    assert booked is not None
    assert booked.source == "trace"
    assert booked.estimate_bytes > SAVED.profiles[2].reserved_bytes


@pytest.mark.parametrize(("shards", "words"), [(1, ""), (2, ""), (2, "gpus=2")])
def test_ranks_that_share_a_gpu_are_booked_each_with_what_its_file_says(
    tmp_path: Path, shards: int, words: str
) -> None:
    """From `#RAD model=m.rad` to shards: DDP and FSDP alike, a file shows of one rank, and all are booked."""
    from slurm_plugin.core.booking.decide import decide
    from slurm_plugin.core.booking.gres_text import count_of, parse_gres
    from slurm_plugin.core.booking.request import request_from
    from slurm_plugin.core.config.load import parse_config
    from slurm_plugin.directives import profile_of, user_directives_of
    from slurm_plugin.estimate import Estimator

    file = tmp_path / "m.rad"
    file.write_text(replace(SAVED, profiles=(profile(64, gpus=2),), shards=shards).to_text())
    said = parse_script(f"#!/bin/sh\n#RAD model=m.rad {words}\n", "job.sh")
    assert said is not None
    text, _ = profile_of(said, (tmp_path,)) or ("", ())
    stated = user_directives_of(said, text)
    assert stated.profile == text
    one = Estimator().estimate(stated)
    assert one is not None
    partition = {"collocate": True, "gpu_memory_mib": 40_000}
    config = parse_config({"mode": "enforce", "partition": {"gpu": partition}}, origin="rad.toml")

    def booked(tasks: int) -> tuple[int, int | None]:
        message = {"user_id": 1000, "partition": "gpu", "gres": "gres:gpu:1", "num_tasks": tasks}
        alone = stated if tasks > 1 else replace(stated, gpus=None)
        rewrite = decide(request_from(message), alone, one, config=config, whole_as_gpu=False)
        assert rewrite.booking is not None, rewrite
        return count_of(parse_gres(rewrite.fields["gres"]), "shard"), rewrite.booking.estimate_bytes

    (shards_of_one, bytes_of_one), (shards_of_two, bytes_of_two) = booked(1), booked(2)
    assert bytes_of_one == one.estimate_bytes
    assert bytes_of_two == 2 * one.estimate_bytes
    assert 2 * shards_of_one - 1 <= shards_of_two <= 2 * shards_of_one

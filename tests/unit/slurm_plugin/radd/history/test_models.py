"""What a profile's key stands for is written down once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from paths import CHECKOUT

from gpumemnet.directives.parse import parse_script
from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.comments.signed_comment import with_profile
from slurm_plugin.core.history.models import from_lines
from slurm_plugin.core.records.submission import JobRequest
from slurm_plugin.directives import profile_of
from slurm_plugin.radd.history.models import Models

SCRIPT = "#!/bin/sh\n#RAD model=models/resnet50_torchinfo.txt batch_size=32 optimizer=adam\n"


def request(*, user_id: int = 1000, script: str = SCRIPT, comment: str | None = None) -> JobRequest:
    directives = parse_script(SCRIPT, "job.sh")
    assert directives is not None
    reported = profile_of(directives, (CHECKOUT / "examples",))
    assert reported is not None
    comment = with_profile("", reported[0]) if comment is None else comment
    return request_from({"user_id": user_id, "script": script, "comment": comment})


def test_a_model_is_named_once_for_each_user(tmp_path: Path):
    path = tmp_path / "models.jsonl"
    for _ in range(2):  # radd was started again
        models = Models(path)
        for user_id in (1000, 1000, 1001):
            models.take(request(user_id=user_id), now_s=5.0)
    found = from_lines(path.read_bytes().splitlines())
    assert len(path.read_bytes().splitlines()) == 2 == len(found)
    model = next(iter(found.values()))
    assert (model.name, model.batch_size, model.optimizer, model.user) == (
        "resnet50_torchinfo",
        32,
        "adam",
        1000,
    )
    assert str(model).startswith("resnet50_torchinfo (cnn, 25,557,032 parameters, batch 32, adam,")
    assert path.stat().st_mode & 0o077 == 0


def test_what_is_not_understood_is_left_out(tmp_path: Path):
    models = Models(tmp_path / "models.jsonl")
    models.take(request(script="#!/bin/sh\n"), now_s=5.0)
    models.take(request(script="#RAD model=\n"), now_s=5.0)
    models.take(request(comment="rad.profile:abc"), now_s=5.0)
    assert not (tmp_path / "models.jsonl").exists()


def test_a_folder_that_is_gone_is_no_reason_to_fail(tmp_path: Path):
    (tmp_path / "file").write_text("")
    models = Models(tmp_path / "file" / "models.jsonl")
    models.take(request(), now_s=5.0)
    assert os.listdir(tmp_path) == ["file"]


def test_what_could_not_be_written_is_written_when_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state" / "models.jsonl"
    (tmp_path / "state").write_text("no folder")
    models = Models(path)
    for _ in range(2):
        models.take(request(), now_s=5.0)
    assert caplog.text.count("models have no names in reports") == 1
    (tmp_path / "state").unlink()
    for _ in range(2):
        models.take(request(), now_s=6.0)
    assert len(path.read_bytes().splitlines()) == 1
    path.unlink()
    path.mkdir()
    models.take(request(user_id=1001), now_s=7.0)
    assert caplog.text.count("models have no names in reports") == 2

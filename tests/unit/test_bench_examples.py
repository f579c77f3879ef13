"""The data sets that packages' own examples read, and the lines that start them."""

from __future__ import annotations

import json
import shlex
import struct
import sys
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import example_data
import example_models
import package_examples


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    example_data.make(root)
    return root


def test_images_are_whole(made: Path) -> None:
    (picture, *_) = sorted((made / "voc" / "VOCdevkit" / "VOC2012" / "SegmentationClass").iterdir())
    data = picture.read_bytes()
    width, height, depth, color = struct.unpack(">IIBB", data[16:26])
    assert (width, height, depth, color) == (500, 375, 8, 0)
    at = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[at - 4 : at])
    rows = zlib.decompress(data[at + 4 : at + 4 + length])
    assert len(rows) == 375 * 501
    assert max(rows) < 21


def test_every_object_lies_in_an_image_that_is_there(made: Path) -> None:
    for split in ("train", "val"):
        told = json.loads((made / "coco" / "annotations" / f"person_keypoints_{split}2017.json").read_text())
        sizes = {image["id"]: (image["width"], image["height"]) for image in told["images"]}
        for image in told["images"]:
            assert (made / "coco" / f"{split}2017" / image["file_name"]).is_file()
        for each in told["annotations"]:
            x, y, width, height = each["bbox"]
            assert x + width <= sizes[each["image_id"]][0] and y + height <= sizes[each["image_id"]][1]
            assert sum(v > 0 for v in each["keypoints"][2::3]) == each["num_keypoints"] >= 10


def test_digits_are_as_many_as_their_headers_say(made: Path) -> None:
    for path in (made / "MNIST" / "raw").glob("*images*"):
        data = path.read_bytes()
        magic, count, rows, columns = struct.unpack(">IIII", data[:16])
        assert magic == 2051
        assert len(data) == 16 + count * rows * columns


def test_a_line_is_started_with_the_environments_python_and_the_sources_script(tmp_path: Path) -> None:
    script = tmp_path / "examples" / "mnist" / "main.py"
    script.parent.mkdir(parents=True)
    script.touch()
    python = Path("/env/bin/python")
    words = package_examples.command("examples/mnist/main.py --epochs 2", tmp_path, python)
    assert words == ["/env/bin/python", str(script), "--epochs", "2"]
    ranks = package_examples.command("torchrun --nproc_per_node 2 examples/mnist/main.py", tmp_path, python)
    assert ranks == shlex.split(f"/env/bin/python -m torch.distributed.run --nproc_per_node 2 {script}")
    inside = package_examples.command("cd examples && mnist/main.py --weights ''", tmp_path, python)
    assert inside == ["/env/bin/python", "mnist/main.py", "--weights", ""]


def test_a_program_of_the_environment_is_started_by_its_python(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    (python.parent / "tune").touch()
    words = package_examples.command("env A=b C=1 tune run full --config x.yaml", tmp_path, python)
    assert words == [
        "env",
        "A=b",
        "C=1",
        *f"{python} {python.parent / 'tune'} run full --config x.yaml".split(),
    ]


@pytest.mark.parametrize(
    ("name", "at_least"), [("package_examples.txt", 50), ("repositories.txt", 30), ("hub_examples.txt", 20)]
)
def test_no_line_stands_twice(name: str, at_least: int) -> None:
    lines = package_examples.LINES.with_name(name).read_text(encoding="utf-8").splitlines()
    assert len(set(lines)) == len(lines) > at_least


def test_texts_of_the_hubs_examples_have_the_columns_that_are_asked_for(made: Path) -> None:
    example_models.texts(made / "text")
    for name, columns in {
        "pairs": {"sentence1", "sentence2", "label"},
        "summaries": {"text", "summary"},
        "words": {"tokens", "ner_tags"},
        "translations": {"translation"},
    }.items():
        rows = [json.loads(line) for line in (made / "text" / f"{name}.json").read_text().splitlines()]
        assert len(rows) == 600 and all(set(row) == columns for row in rows)
    for row in json.loads((made / "text" / "questions.json").read_text())["data"]:
        assert row["context"].startswith(row["answers"]["text"][0])
    assert "text" in json.loads((made / "chats" / "train.jsonl").read_text().splitlines()[0])


def test_a_metric_lies_where_it_is_looked_for_offline_and_has_no_number(tmp_path: Path) -> None:
    example_models.metrics(tmp_path)
    (accuracy,) = tmp_path.glob("hf/modules/evaluate_modules/metrics/evaluate-metric--accuracy/*/accuracy.py")
    compile(accuracy.read_text(), str(accuracy), "exec")
    assert "AssertionError" in accuracy.read_text()
    assert (accuracy.parent / "__init__.py").exists() and accuracy.with_suffix(".json").exists()


def test_a_script_stands_in_a_copy_of_its_clone_with_the_data_beside_its_own(tmp_path: Path) -> None:
    data, clone, work = (tmp_path / name for name in ("made", "clone", "work"))
    for path in (
        data / "pairs" / "1.png",
        data / "home" / "cache",
        clone / "train.py",
        clone / "data" / "own.py",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    package_examples.lay(data, clone, work)
    (work / "train.py").write_text("changed")
    assert (clone / "train.py").read_text() == "train.py"
    for path in ("pairs/1.png", "data/pairs/1.png", "data/own.py", "datasets/pairs/1.png"):
        assert (work / path).is_file()
    assert not (work / "home").exists()

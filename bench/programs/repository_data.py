"""Write tiny data sets and models for training repositories: PYTHON bench/programs/repository_data.py FOLDER.

What well-known training repositories read beyond the folders of example_data.py: noise under the names of CIFAR,
token files, pairs of image folders, Carvana's masks, boxes in YOLO's layout, instructions and a time series; and in
FOLDER/home models of published shapes with random weights, where a hub's cache would hold them.
"""

from __future__ import annotations

import csv
import json
import pickle
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from example_data import below, image, sentences

IGNORED_CHECKSUMS = '''"""CIFAR's files are noise here: torchvision's checksums of them hold."""

import sys
from importlib.machinery import PathFinder


class _Cifar:
    def find_spec(self, name, path=None, target=None):
        if name != "torchvision.datasets.cifar":
            return None
        spec = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def execute(module):
            run(module)
            module.check_integrity = lambda *_: True

        spec.loader.exec_module = execute
        return spec


sys.meta_path.insert(0, _Cifar())
'''


def cifar(root: Path) -> None:
    """CIFAR-10 and CIFAR-100 as torchvision unpacks them: 2,000 images to train on, 200 to test."""
    draw = np.random.default_rng(1)

    def batch(path: Path, count: int, labels: dict[str, int]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"data": draw.integers(0, 256, (count, 3072), dtype=np.uint8)} | {
            name: [n % classes for n in range(count)] for name, classes in labels.items()
        }
        path.write_bytes(pickle.dumps(content))

    ten, hundred = root / "cifar-10-batches-py", root / "cifar-100-python"
    for n in range(1, 6):
        batch(ten / f"data_batch_{n}", 400, {"labels": 10})
    batch(ten / "test_batch", 200, {"labels": 10})
    names = {"label_names": [str(n) for n in range(10)]}
    (ten / "batches.meta").write_bytes(pickle.dumps(names))
    for split, count in (("train", 2000), ("test", 200)):
        batch(hundred / split, count, {"fine_labels": 100, "coarse_labels": 20})
    (hundred / "meta").write_bytes(
        pickle.dumps({"fine_label_names": [str(n) for n in range(100)], "coarse_label_names": []})
    )


def tokens(root: Path) -> None:
    """Token files: characters of Shakespeare's (65 of them) and GPT-2's vocabulary; and a text."""
    draw = np.random.default_rng(2)
    for name, vocabulary in (("shakespeare_char", 65), ("openwebtext", 50257)):
        (root / name).mkdir(parents=True, exist_ok=True)
        for split in ("train", "val"):
            draw.integers(0, vocabulary, 200_000).astype(np.uint16).tofile(root / name / f"{split}.bin")
    letters = {chr(40 + n): n for n in range(65)}
    meta = {"vocab_size": 65, "stoi": letters, "itos": {n: c for c, n in letters.items()}}
    (root / "shakespeare_char" / "meta.pkl").write_bytes(pickle.dumps(meta))
    (root / "input.txt").write_text("O God, O God!\n" + "\n".join(sentences(2000)), encoding="utf-8")


def pairs(root: Path) -> None:
    """Two domains of images (trainA, trainB, side by side in train), a flat folder, and Carvana's masks."""
    for split in ("train", "test"):
        for n in range(12):
            for domain in "AB":
                image(root / "pairs" / f"{split}{domain}" / f"{n}.png", 256, 256)
                image(root / "monet2photo" / split / domain / f"{n}.png", 256, 256)
            image(root / "pairs" / split / f"{n}.png", 512, 256)
    for n in range(64):
        image(root / "flat" / f"{n % 4}_{n}.png", 64, 64)
        image(root / "imgs" / f"{n}.png", 960, 640)
        image(root / "masks" / f"{n}_mask.png", 960, 640, gray=True, values=2)


def boxes(root: Path) -> None:
    """Images with text files of boxes, as YOLO's trainers read them, and the YAML that names them."""
    for split in ("train2017", "val2017"):
        for n in range(32):
            image(root / "boxes" / "images" / split / f"{n:06}.png", 640, 480)
            label = root / "boxes" / "labels" / split / f"{n:06}.txt"
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text(
                "".join(f"{k} 0.{k + 2} 0.{k + 3} 0.2 0.2\n" for k in range(5)), encoding="utf-8"
            )
    names = "\n" + "".join(f"  {n}: thing{n}\n" for n in range(80))
    listed = json.dumps([f"thing{n}" for n in range(80)])
    for name, classes in (("boxes.yaml", names), ("boxes_listed.yaml", f" {listed}\n")):
        where = "train: boxes/images/train2017\nval: boxes/images/val2017\nnc: 80\n"
        (root / name).write_text(f"{where}names:{classes}", encoding="utf-8")


def instructions(root: Path) -> None:
    """Instructions and answers as JSON, captions of images, and an hourly series of seven values."""
    said = list(sentences(256))
    rows = [
        {"instruction": one, "input": "", "output": two}
        for one, two in zip(said, reversed(said), strict=True)
    ]
    (root / "instructions.json").write_text(json.dumps(rows), encoding="utf-8")
    chat = root / "chat"
    chat.mkdir(parents=True, exist_ok=True)
    lines = ({"prompt": r["instruction"], "completion": " " + r["output"]} for r in rows)
    (chat / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines), encoding="utf-8")
    preferred = root / "preferred"
    preferred.mkdir(parents=True, exist_ok=True)
    chosen = ({"prompt": r["instruction"], "chosen": r["output"], "rejected": "the the"} for r in rows)
    (preferred / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in chosen), encoding="utf-8")
    captioned = root / "captioned" / "train"
    for n in range(24):
        image(captioned / f"{n}.png", 256, 256)
    about = (json.dumps({"file_name": f"{n}.png", "text": s}) + "\n" for n, s in enumerate(said[:24]))
    (captioned / "metadata.jsonl").write_text("".join(about), encoding="utf-8")
    draw = np.random.default_rng(3)
    with (root / "ETTh1.csv").open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file)
        write.writerow(["date", "HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"])
        hours = np.datetime64("2016-07-01T00:00:00") + np.arange(17420) * np.timedelta64(1, "h")
        for hour, values in zip(hours, draw.random((17420, 7)), strict=True):
            write.writerow([str(hour).replace("T", " "), *(f"{v:.3f}" for v in values)])


def make(root: Path) -> None:
    """Make all of it."""
    cifar(root)
    tokens(root)
    pairs(root)
    boxes(root)
    instructions(root)
    below(root, "mnist", "MNIST")
    site = root / "home" / "python"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(IGNORED_CHECKSUMS, encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))

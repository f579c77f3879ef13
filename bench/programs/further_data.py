"""Write small data for the later repositories of programs.txt: python bench/programs/further_data.py FOLDER.

Letters of enwik8, clouds of points in the parts of ShapeNet, stacks of confocal images, a corpus in one file, and
instructions and rated pairs of sentences under the names that fine-tuning programs load. Needs NumPy and h5py.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from example_data import sentences

ENWIK8_BYTES = 95_100_000
"""The readers split at 90 and 95 million."""


def letters(root: Path) -> None:
    """Letters in the packed file that readers of enwik8 open."""
    said = (" ".join(sentences(4000)) + "\n").encode()
    with gzip.open(root / "enwik8.gz", "wb", compresslevel=1) as file:
        for _ in range(ENWIK8_BYTES // len(said) + 1):
            file.write(said)


def words(root: Path) -> None:
    """A corpus in one file of text."""
    (root / "train.txt").write_text("\n".join(sentences(8000)) + "\n", encoding="utf-8")


def parts(root: Path) -> None:
    """ShapeNet's parts: clouds of points in text, a label for each point."""
    folder = root / "shapenet"
    draw = np.random.default_rng(9)
    kinds = {"Airplane": "02691156", "Chair": "03001627"}
    listed = []
    for kind in kinds.values():
        for n in range(48):
            for name, suffix in (("points", "pts"), ("points_label", "seg")):
                path = folder / kind / name / f"s{n}.{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                values = draw.normal(size=(2600, 3)) if suffix == "pts" else draw.integers(1, 5, 2600)
                np.savetxt(path, values, fmt="%.4f" if suffix == "pts" else "%d")
            listed.append(f"shape_data/{kind}/s{n}")
    rows = "".join(f"{name}\t{kind}\n" for name, kind in kinds.items())
    (folder / "synsetoffset2category.txt").write_text(rows, encoding="utf-8")
    (folder / "train_test_split").mkdir(exist_ok=True)
    for split in ("train", "val", "test"):
        path = folder / "train_test_split" / f"shuffled_{split}_file_list.json"
        path.write_text(json.dumps(listed), encoding="utf-8")


def stacks(root: Path) -> None:
    """Two stacks of images in HDF5 with their segments, where the 3D U-Net's configuration has them as it stands."""
    import h5py

    draw = np.random.default_rng(10)
    for name in ("PATH_TO_TRAIN_DIR", "PATH_TO_VAL_DIR"):
        (root / name).mkdir(exist_ok=True)
        with h5py.File(root / name / "ovule.h5", "w") as file:
            file["raw"] = draw.integers(0, 256, (88, 190, 190), dtype=np.uint8)
            file["label"] = draw.integers(1, 9, (88, 190, 190), dtype=np.int32)


def texts(root: Path) -> None:
    """Instructions with answers, and pairs of sentences with a score."""
    said = list(sentences(320))
    pairs = list(zip(said, reversed(said), strict=True))
    instructions = [{"instruction": one, "input": "", "output": two} for one, two in pairs]
    scored = [{"sentence1": one, "sentence2": two, "score": n % 6 / 5} for n, (one, two) in enumerate(pairs)]
    files = {
        "alpaca": (("train",), instructions),
        "sentence-transformers/stsb": (("train", "validation", "test"), scored),
    }
    for folder, (splits, rows) in files.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for split in splits:
            path = root / folder / f"{split}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make(root: Path) -> None:
    """Make all of it."""
    for fill in (letters, words, parts, stacks, texts):
        fill(root)


if __name__ == "__main__":
    make(Path(sys.argv[1]))

"""Write tiny data sets in the layouts that packages' examples read: python bench/programs/example_data.py FOLDER.

Noise under the names of ImageNet folders, COCO, Pascal VOC, MNIST, Fashion-MNIST, BSDS300, flying chairs, Oxford's
pets, Cora, WikiText and GLUE's MRPC: 80 MiB, by the standard library alone. Images are PNG whatever their suffix says:
readers go by the bytes.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

WORDS = (
    "the",
    "gpu",
    "of",
    "a",
    "model",
    "holds",
    "what",
    "its",
    "layers",
    "save",
    "for",
    "backward",
    "in",
    "two",
    "steps",
)
VISIBLE = 12
"""Of a person's 17 keypoints; torchvision's reference leaves out images with fewer than ten."""


def image(path: Path, width: int, height: int, *, gray: bool = False, values: int = 256) -> None:
    """Write noise as a PNG.

    Args:
        path: Where to; its folder is made.
        width: Pixels.
        height: Pixels.
        gray: One channel instead of three.
        values: Pixels lie below this (classes of a mask).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = random.Random(path.name)
    row = bytes(draw.randrange(values) for _ in range(width * (1 if gray else 3)))
    rows = b"".join(b"\0" + row[i % 7 :] + row[: i % 7] for i in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if gray else 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def folders(root: Path) -> None:
    """ImageNet's layout: train and val, ten classes."""
    for split in ("train", "val"):
        for n in range(120):
            image(root / split / f"n{n % 10:08}" / f"{n}.jpg", 256, 256)


def coco(root: Path) -> None:
    """COCO of 2017: boxes, polygons and persons' keypoints."""
    for split in ("train", "val"):
        images, objects = [], []
        for n in range(12):
            width, height = (640, 480) if n % 3 else (480, 640)
            name = f"{n:012}.jpg"
            image(root / f"{split}2017" / name, width, height)
            images.append({"id": n, "file_name": name, "width": width, "height": height})
            for k in range(4):
                x, y, side = 30 + 90 * k, 40 + 60 * k, 60 + 40 * k
                corners = [x, y, x + side, y, x + side, y + side, x, y + side]
                joints = [v for j in range(17) for v in (x + j, y + j, 2 if j < VISIBLE else 0)]
                objects.append(
                    {"id": 10 * n + k + 1, "image_id": n, "category_id": 1, "bbox": [x, y, side, side], "iscrowd": 0,
                     "area": side * side, "segmentation": [corners], "keypoints": joints, "num_keypoints": VISIBLE}
                )  # fmt: skip
        labels = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "person"}]}
        for kind in ("instances", "person_keypoints"):
            path = root / "annotations" / f"{kind}_{split}2017.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(labels), encoding="utf-8")


def voc(root: Path) -> None:
    """Pascal VOC of 2012: images and masks of 21 classes."""
    base = root / "VOCdevkit" / "VOC2012"
    names = [f"2007_{n:06}" for n in range(24)]
    for name in names:
        image(base / "JPEGImages" / f"{name}.jpg", 500, 375)
        image(base / "SegmentationClass" / f"{name}.png", 500, 375, gray=True, values=21)
    for split in ("train", "val"):
        path = base / "ImageSets" / "Segmentation" / f"{split}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(names) + "\n", encoding="utf-8")


def digits(root: Path, train: int) -> None:
    """MNIST's four files, unpacked.

    Args:
        root: Folder.
        train: Digits to train on; some examples split MNIST's 60,000 by number.
    """
    root.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    for split, count in (("train", train), ("t10k", 500)):
        pixels = draw.randbytes(100 * 28 * 28) * (count // 100)
        (root / f"{split}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + pixels)
        labels = bytes(n % 10 for n in range(count))
        (root / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels)


def chairs(root: Path) -> None:
    """Flying chairs: pairs of images and their optical flow."""
    data = root / "FlyingChairs" / "data"
    data.mkdir(parents=True, exist_ok=True)
    draw = random.Random(2)
    width, height, count = 512, 384, 4
    for n in range(1, count + 1):
        for which in (1, 2):
            header = f"P6\n{width} {height}\n255\n".encode()
            (data / f"{n:05}_img{which}.ppm").write_bytes(header + draw.randbytes(width * height * 3))
        flow = struct.pack("<fii", 202021.25, width, height) + struct.pack("<f", 0.5) * (2 * width * height)
        (data / f"{n:05}_flow.flo").write_bytes(flow)
    (root / "FlyingChairs" / "FlyingChairs_train_val.txt").write_text("1\n" * count, encoding="utf-8")


def cora(root: Path) -> None:
    """Cora's papers: 2,708 with 1,433 words and 5,429 citations."""
    root.mkdir(parents=True, exist_ok=True)
    draw = random.Random(3)
    papers = [str(31336 + n) for n in range(2708)]
    with (root / "cora.content").open("w", encoding="utf-8") as file:
        for n, paper in enumerate(papers):
            words = ["0"] * 1433
            for _ in range(18):
                words[draw.randrange(1433)] = "1"
            file.write("\t".join([paper, *words, f"Class_{n % 7}"]) + "\n")
    cites = "".join("\t".join(draw.sample(papers, 2)) + "\n" for _ in range(5429))
    (root / "cora.cites").write_text(cites, encoding="utf-8")


def below(root: Path, folder: str, name: str) -> None:
    """Also show some data in a folder where another script looks for them.

    Args:
        root: Folder of all data.
        folder: Where they are to be seen, in it.
        name: What they are called.
    """
    link = root / folder / name
    link.parent.mkdir(exist_ok=True)
    if not link.exists():
        link.symlink_to(f"../{name}")


def sentences(count: int) -> Iterator[str]:
    """Yield sentences of 5 to 40 words."""
    draw = random.Random(4)
    for _ in range(count):
        yield " ".join(draw.choices(WORDS, k=draw.randint(5, 40)))


def texts(root: Path) -> None:
    """WikiText's three files, and GLUE's MRPC as lines of JSON."""
    wiki = root / "wikitext"
    wiki.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid", "test"):
        (wiki / f"{split}.txt").write_text("\n".join(sentences(2000)) + "\n", encoding="utf-8")
    (root / "wikitext-2.txt").write_text("\n".join(sentences(8000)) + "\n", encoding="utf-8")
    glue = root / "nyu-mll" / "glue"
    glue.mkdir(parents=True, exist_ok=True)
    said = list(sentences(256))
    rows = [
        {"sentence1": one, "sentence2": two, "label": n % 2, "idx": n}
        for n, (one, two) in enumerate(zip(said, reversed(said), strict=True))
    ]
    for split in ("train", "validation", "test"):
        (glue / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    files = "".join(
        f"  - split: {split}\n    path: {split}.jsonl\n" for split in ("train", "validation", "test")
    )
    head = f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{files}---\n"
    (glue / "README.md").write_text(head, encoding="utf-8")


def make(root: Path) -> None:
    """Make all of it."""
    folders(root / "imagenet")
    coco(root / "coco")
    voc(root / "voc")
    digits(root / "MNIST" / "raw", train=60_000)
    digits(root / "FashionMNIST" / "raw", train=2000)
    chairs(root)
    for n in range(240):
        image(root / "pets" / f"{('beagle', 'Bengal')[n % 2]}_{n}.jpg", 300, 300)
        if n < 24:
            for split in ("train", "test"):
                image(root / "dataset" / "BSDS300" / "images" / split / f"{n}.jpg", 481, 321)
    cora(root / "cora")
    texts(root)


if __name__ == "__main__":
    make(Path(sys.argv[1]))

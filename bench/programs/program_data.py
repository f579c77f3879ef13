"""Write small data for programs.txt: python bench/programs/program_data.py FOLDER.

Next to what the other modules here make: CelebA with its attributes, shapes as clouds of points, views of a scene, a
corpus under the names of Penn Treebank, graphs, and weights under the names that torchvision downloads. Needs NumPy,
h5py, torchvision and diffusers.
"""

from __future__ import annotations

import json
import os
import sys
from multiprocessing import Process
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import example_data
import further_data
import model_data
import repository_data
from example_data import image, sentences

ATTRIBUTES = ("Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young")


def celeba(root: Path) -> None:
    """CelebA: 178 x 218 pixels and five attributes; the first 2,000 names are for tests and share a few files."""
    folder = root / "celeba" / "images"
    for n in range(64):
        image(folder / f"{n:06}.jpg", 178, 218)
    rows = (f"{n % 64:06}.jpg " + " ".join(("1", "-1")[(n >> k) % 2] for k in range(5)) for n in range(2400))
    text = "2400\n" + " ".join(ATTRIBUTES) + "\n" + "\n".join(rows) + "\n"
    (root / "celeba" / "list_attr_celeba.txt").write_text(text, encoding="utf-8")


def shapes(root: Path) -> None:
    """ModelNet40 as resampled: 10,000 points with normals in a file of text."""
    folder = root / "modelnet40_normal_resampled"
    draw = np.random.default_rng(6)
    names = [f"shape{n}" for n in range(40)]
    folder.mkdir(parents=True)
    (folder / "modelnet40_shape_names.txt").write_text("\n".join(names) + "\n")
    lines = ["%.4f," * 5 % tuple(row[:5]) + f"{row[5]:.4f}" for row in draw.normal(size=(2048, 6))]
    cloud = "\n".join(lines) + "\n"
    for split, count in (("train", 10), ("test", 2)):
        ids = [f"{name}_{n:04}" for name in names for n in range(count)]
        (folder / f"modelnet40_{split}.txt").write_text("\n".join(ids) + "\n")
        for each in ids:
            path = folder / each.rpartition("_")[0] / f"{each}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(cloud)


def views(root: Path) -> None:
    """Blender's views of a scene for NeRF: RGBA, 800 x 800."""
    import zlib
    from struct import pack

    folder = root / "nerf_synthetic" / "lego"
    side = 800
    noise = np.random.default_rng(7).integers(0, 256, (side, 1 + 4 * side), dtype=np.uint8)
    noise[:, 0] = 0
    data = zlib.compress(noise.tobytes(), 1)
    parts = ((b"IHDR", pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)), (b"IDAT", data), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    for split, count in (("train", 8), ("val", 2), ("test", 2)):
        (folder / split).mkdir(parents=True)
        frames = []
        for n in range(count):
            (folder / split / f"r_{n}.png").write_bytes(png)
            at = [[1.0, 0, 0, 0.1 * n], [0, 1, 0, 0], [0, 0, 1, 4.0], [0, 0, 0, 1]]
            frames.append({"file_path": f"./{split}/r_{n}", "transform_matrix": at})
        frame = {"camera_angle_x": 0.69, "frames": frames}
        (folder / f"transforms_{split}.json").write_text(json.dumps(frame))


def treebank(root: Path) -> None:
    """A corpus of 10,000 words in Penn Treebank's three files."""
    folder = root / "penn"
    folder.mkdir(parents=True)
    draw = np.random.default_rng(8)
    for split, count in (("train", 900_000), ("valid", 70_000), ("test", 78_000)):
        words = [f"w{n}" for n in np.minimum(draw.zipf(1.3, count), 9_999)]
        words[:10_000] = [f"w{n}" for n in range(10_000)]
        rows = (" ".join(words[n : n + 20]) for n in range(0, count, 20))
        (folder / f"{split}.txt").write_text("\n".join(rows) + "\n")


def graphs(root: Path) -> None:
    """Cora in the files of Planetoid: 2,708 papers of 1,433 words."""
    import pickle

    from scipy.sparse import random as sparse

    draw = np.random.default_rng(4)
    folder = root / "Planetoid" / "Cora" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    nodes, tested, classes = 2708, 1000, 7
    known = nodes - tested
    labels = np.eye(classes, dtype=np.int32)[draw.integers(0, classes, nodes)]
    words = sparse(nodes, 1433, density=0.0127, format="csr", dtype=np.float32, random_state=4)
    files = {
        "x": words[:140], "tx": words[known:], "allx": words[:known],
        "y": labels[:140], "ty": labels[known:], "ally": labels[:known],
        "graph": {n: draw.integers(0, nodes, 4).tolist() for n in range(nodes)},
    }  # fmt: skip
    for name, value in files.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value))
    (folder / "ind.cora.test.index").write_text("".join(f"{n}\n" for n in range(known, nodes)))


def weights(root: Path) -> None:
    """Drawn weights where torch.hub keeps what it downloaded."""
    import torch
    import torchvision

    folder = root / "home" / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in (
        ("vgg16", "vgg16-397923af.pth"), ("vgg19", "vgg19-dcbb9e9d.pth"), ("resnet50", "resnet50-0676ba61.pth"),
    ):  # fmt: skip
        torch.save(torchvision.models.get_model(name, weights=None).state_dict(), folder / file)
    xcit = folder.parent / "facebookresearch_xcit_main"  # DINO needs the names of its models
    xcit.mkdir(exist_ok=True)
    (xcit / "hubconf.py").touch()


def pictures(root: Path) -> None:
    """Pairs of pictures side by side, as pix2pix reads them, and faces of 256 x 256 in one folder."""
    for split in ("train", "val", "test"):
        for n in range(24):
            image(root / "facades" / split / f"{n}.jpg", 512, 256)
    for n in range(48):
        image(root / "faces" / "all" / f"{n}.jpg", 256, 256)
        image(root / "img_align_celeba" / f"{n}.jpg", 256, 256)


def _small(root: Path) -> None:
    example_data.texts(root)
    example_data.cora(root / "cora")
    example_data.below(root, "mnist", "MNIST")
    site = root / "home" / "python"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(repository_data.IGNORED_CHECKSUMS, encoding="utf-8")
    for fill in (repository_data.cifar, repository_data.tokens, repository_data.instructions, shapes, views):
        fill(root)
    (root / "words.txt").write_text("\n".join(sentences(8000)) + "\n", encoding="utf-8")


def _examples(root: Path) -> None:
    example_data.digits(root / "MNIST" / "raw", train=60_000)
    example_data.digits(root / "FashionMNIST" / "raw", train=2000)
    for n in range(240):
        image(root / "pets" / f"{('beagle', 'Bengal')[n % 2]}_{n}.jpg", 300, 300)
        if n < 24:
            for split in ("train", "test"):
                image(root / "dataset" / "BSDS300" / "images" / split / f"{n}.jpg", 481, 321)


def make(root: Path) -> None:
    """Make all of it, some things at the same time.

    Args:
        root: Folder; nothing is done if it is there.
    """
    if root.exists():
        return
    part = root.with_name(root.name + ".part")
    part.mkdir(parents=True)
    jobs = [
        (weights, part), (_small, part), (_examples, part), (example_data.folders, part / "imagenet"),
        (example_data.coco, part / "coco"), (repository_data.pairs, part), (repository_data.boxes, part),
        (celeba, part), (treebank, part), (graphs, part), (pictures, part), (further_data.make, part),
        (model_data.make, part),
    ]  # fmt: skip
    made = [Process(target=fill, args=(where,)) for fill, where in jobs]
    for each in made:
        each.start()
    for each in made:
        each.join()
        if each.exitcode:
            sys.exit("not all data could be made")
    os.rename(part, root)


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())

"""Unmodified training scripts, run by `rad-estimate -- python script.py` on a GPU that is not there."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from traced import MAIN, estimated  # noqa: E402

from gpumemnet.gpus import DEFAULT_GPU, gpu_named  # noqa: E402
from gpumemnet.tracing.saved.make import saved_profile  # noqa: E402
from gpumemnet.tracing.saved.record import SavedProfile  # noqa: E402
from gpumemnet.tracing.script import pretend  # noqa: E402
from gpumemnet.tracing.script.failures import why  # noqa: E402
from gpumemnet.tracing.script.streams import Streams  # noqa: E402
from gpumemnet.tracing.trace.cuda import device  # noqa: E402
from gpumemnet.tracing.trace.recording.recorder import Recorder  # noqa: E402
from gpumemnet.tracing.trace.recording.workspace import Workspaces  # noqa: E402
from gpumemnet.units import to_mib_nearest  # noqa: E402

CLASSIFIER = """
    import argparse, torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    size = parser.parse_args().batch
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert torch.cuda.get_device_properties(0).total_memory > 0
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 900, 10)
    )
    {optimizer}
    model = model.to(device)
    images, labels = torch.randn(400, 3, 32, 32), torch.randint(0, 10, (400,))
    loader = DataLoader(TensorDataset(images, labels), size, shuffle=True, num_workers=2, pin_memory=True)
    for epoch in range(100):
        for image, label in loader:
            image, label = image.to(device, non_blocking=True), label.cuda()
            {step}
            torch._assert(not (label < 0).any(), "there are no values to check")
            if torch.isnan(loss) or not torch.isfinite(loss):
                raise SystemExit("diverged")
            right = (output.argmax(1) == label).sum().item()
            print(loss.item(), right, output.detach().cpu().numpy().shape)
        torch.save(model.state_dict(), "weights.pt")
    open("trained.txt", "w").write("done")
"""
PLAIN = "; ".join(
    (
        "optimizer.zero_grad()",
        "output = model(image)",
        "loss = nn.functional.cross_entropy(output, label)",
        "loss.backward()",
        "optimizer.step()",
    )
)
AMP = """with torch.autocast("cuda", dtype=torch.float16):
                output = model(image); loss = nn.functional.cross_entropy(output, label)
            scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(); optimizer.zero_grad()"""
ADAMW = "optimizer = torch.optim.AdamW(model.parameters())"


def same_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 900, 10)
    )


def test_a_plain_loop_is_traced_as_it_stands(tmp_path: Path) -> None:
    """As `gpumemnet.save` on the same model says, within 5 %; and nothing is written but what was requested."""
    source = CLASSIFIER.format(optimizer=ADAMW, step=PLAIN)
    done = estimated(tmp_path, source, "--batch", "64", options=("--save", "m.rad"))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.rad", "train.py"]
    saved = SavedProfile.from_text((tmp_path / "m.rad").read_text(), path="m.rad")
    (profile,) = saved.profiles
    assert (profile.batch_size, profile.optimizer, profile.precision) == (64, "adamw", "fp32")
    assert saved.inputs == ("64x3x32x32:float32",)
    assert saved.command[1:] == ("train.py", "--batch", "64")
    direct = saved_profile(same_model(), (64, 3, 32, 32), loss=nn.CrossEntropyLoss(), optimizer="adamw")
    (same,) = (each for each in direct.profiles if each.batch_size == 64)
    assert profile.reserved_bytes == pytest.approx(same.reserved_bytes, rel=0.05)
    assert profile.parameters == same.parameters
    assert profile.optimizer_bytes == same.optimizer_bytes
    assert json.loads(done.stdout)["estimator"] == "trace"


def test_advice_about_a_saved_trace_traces_its_command_again(tmp_path: Path) -> None:
    source = CLASSIFIER.format(optimizer=ADAMW, step=PLAIN)
    done = estimated(tmp_path, source, "--batch", "8", options=("--save", "m.rad"))
    assert done.returncode == 0, done.stderr
    command = [sys.executable, "-c", MAIN, "m.rad", "--sweep", "--gpu=h100", "--json"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    rows = json.loads(found.stdout)["sweep"]
    assert [row["batch_size"] for row in rows] == [2, 4, 8, 16, 32], found.stderr
    needs = [row["needs_mib"] for row in rows]
    assert needs[0] < needs[-1] and all(row["fit"] for row in rows)
    assert (
        SavedProfile.from_text((tmp_path / "m.rad").read_text(), path="m.rad").versions["gpumemnet"]
        != "unknown"
    )


def test_mixed_precision_and_an_optimizer_with_momentum_are_seen(tmp_path: Path) -> None:
    optimizer = (
        "optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9); scaler = torch.amp.GradScaler()"
    )
    done = estimated(tmp_path, CLASSIFIER.format(optimizer=optimizer, step=AMP), options=("--save", "m.rad"))
    assert (done.returncode, done.stderr) == (0, "")
    (profile,) = SavedProfile.from_text((tmp_path / "m.rad").read_text(), path="m.rad").profiles
    assert (profile.batch_size, profile.optimizer, profile.precision) == (32, "sgd-momentum", "amp")


@pytest.mark.parametrize("flag", [False, True])
def test_trials_of_cudnn_are_seen_and_explained(tmp_path: Path, flag: bool) -> None:
    source = CLASSIFIER.format(optimizer=f"torch.backends.cudnn.benchmark = {flag}; {ADAMW}", step=PLAIN)
    done = estimated(tmp_path, source, options=("--save", "m.rad", "--explain"))
    assert done.returncode == 0
    (profile,) = SavedProfile.from_text((tmp_path / "m.rad").read_text(), path="m.rad").profiles
    assert (profile.benchmark, profile.convs, profile.linears) == (int(flag), 1, 1)
    assert ("cudnn.benchmark is on: the bound is" in done.stdout) == flag


def test_a_script_that_fails_is_recognised_by_its_models_text(tmp_path: Path) -> None:
    source = CLASSIFIER.format(optimizer=ADAMW, step=f'{PLAIN}; raise KeyError("no such column")')
    done = estimated(tmp_path, source)
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert answer["estimator"] == "rad"
    reported = answer["warnings"][0]
    assert reported.startswith("the script could not be traced: KeyError: 'no such column', at train.py:")


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        (
            "DynamicOutputShapeException",
            "aten._pack_padded_sequence.default",
            "what _pack_padded_sequence gives depends on values, and a trace computes none",
        ),
        (
            "AcceleratorError",
            "CUDA error: CUDA driver version is insufficient for CUDA runtime version\nSearch for ...",
            "it calls the CUDA driver itself (a CUDA graph, a custom kernel), which a trace does not have",
        ),
        (
            "RuntimeError",
            "_share_fd_: only available on CPU",
            "it shares tensors of the GPU with its own processes, and a trace runs one: try it with one process",
        ),
        ("ValueError", "bad\n column", "ValueError: bad column"),
    ],
)
def test_an_exception_is_reported_in_a_line_that_names_the_cause(kind: str, words: str, said: str) -> None:
    assert why(kind, words) == said


def test_a_script_that_fails_before_it_has_a_model_is_recognised_by_that_alone(tmp_path: Path) -> None:
    done = estimated(tmp_path, "import torch\nraise ValueError('no such column')\n")
    assert done.returncode == 2
    assert done.stderr == (
        "rad-estimate: your script ended before it used the GPU: ValueError: no such column, at train.py:2\n"
    )


def test_a_script_that_trains_nothing_says_so_in_one_line(tmp_path: Path) -> None:
    done = estimated(tmp_path, "import torch\nprint('evaluated')\n")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "its last words: evaluated" in done.stderr


PICTURES = """
    import torch
    from torch import nn

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(3, 8, 3)

        def forward(self, pictures, targets):
            return {"loss": sum(self.layer(each[None]).mean() for each in pictures)}

    model = Detector().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        loss = model([torch.rand(3, 32, 40).cuda(), torch.rand(3, 40, 32).cuda()], [{}, {}])["loss"]
        loss.backward()
        optimizer.step()
"""


def test_a_list_of_pictures_is_a_batch_of_so_many(tmp_path: Path) -> None:
    done = estimated(tmp_path, PICTURES, options=("--save", "m.rad"))
    assert (done.returncode, done.stderr) == (0, "")
    assert SavedProfile.from_text((tmp_path / "m.rad").read_text(), path="m.rad").batch_size == 2


HEADS = """
    import torch
    from types import SimpleNamespace
    from torch import nn

    class RoIHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.fg_bg_sampler = SimpleNamespace(batch_size_per_image=64, positive_fraction=0.25)
            self.mask_head = nn.Linear(8, 8)

        def select_training_samples(self, proposals, targets):
            return proposals, None, [torch.ones(64, dtype=torch.int64).cuda() for _ in proposals], None

        def forward(self, proposals):
            _, _, labels, _ = self.select_training_samples(proposals, None)
            shown = [torch.where(each > 0)[0] for each in labels]
            assert [len(each) for each in shown] == [16, 16]
            return sum(self.mask_head(each[at]).sum() for each, at in zip(proposals, shown))
"""
DETECTS = """
    import torch
    from torchvision.models.detection.roi_heads import RoIHeads

    model = RoIHeads().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        loss = model([torch.rand(64, 8).cuda(), torch.rand(64, 8).cuda()])
        loss.backward()
        optimizer.step()
"""


def test_a_head_for_masks_sees_no_more_boxes_than_the_sampler_takes(tmp_path: Path) -> None:
    """In the manner of torchvision's, whose heads are found by their module's name."""
    heads = tmp_path / "torchvision" / "models" / "detection" / "roi_heads.py"
    heads.parent.mkdir(parents=True)
    heads.write_text(textwrap.dedent(HEADS))
    done = estimated(tmp_path, DETECTS)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert (answer["estimator"], answer["warnings"]) == ("trace", [])


DISTRIBUTED = """
    import os, sys, torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    torch.distributed.init_process_group("nccl")
    rank = torch.distributed.get_rank()
    assert torch.distributed.get_world_size() == 2 == int(os.environ["WORLD_SIZE"])
    assert torch.cuda.device_count() == int(os.environ["LOCAL_WORLD_SIZE"])
    model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 10)).cuda(rank)
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(400, 784), torch.randint(0, 10, (400,)))
    for image, label in DataLoader(data, 32, sampler=DistributedSampler(data)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(image), label.cuda(rank))
        loss.backward()
        optimizer.step()
        torch.distributed.all_reduce(loss)
        sent = [None, None]
        torch.distributed.all_gather_object(obj=len(image), object_list=sent)
        assert sent == [32, 32]
    torch.distributed.barrier()
"""


def test_a_rank_of_a_data_parallel_script_holds_its_buckets(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(DISTRIBUTED))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"]
    command = [sys.executable, "-c", MAIN, "--save", "m.rad", "--json", "--", *launcher]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (profile,) = SavedProfile.from_text((tmp_path / "m.rad").read_text(), path="m.rad").profiles
    parameters = 784 * 2048 + 2048 + 2048 * 10 + 10
    assert (profile.parameters, profile.batch_size, profile.gpus) == (parameters, 32, 2)
    # Gradients themselves are gone where the next forward begins; the buckets stay.
    assert profile.gradient_bytes >= 4 * parameters
    answer = json.loads(done.stdout)
    assert answer["breakdown_mib"]["base"] > to_mib_nearest(gpu_named(DEFAULT_GPU).nccl_bytes)
    assert not any("NCCL" in warning for warning in answer["warnings"])


def test_what_nccl_holds_for_one_rank_is_counted_and_for_further_groups_said(tmp_path: Path) -> None:
    groups = "torch.distributed.new_group([0], None, 'gloo')\ntorch.distributed.new_group([0])\nfor image"
    alone = textwrap.dedent(DISTRIBUTED).replace("== 2 ==", "== 1 ==").replace("for image", groups)
    (tmp_path / "train.py").write_text(alone)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", "train.py"]
    command = [sys.executable, "-c", MAIN, "--json", "--", *launcher]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    reported = [warning for warning in answer["warnings"] if "NCCL" in warning]
    assert len(reported) == 1 and "further" in reported[0]
    gpu = gpu_named(DEFAULT_GPU)
    assert answer["breakdown_mib"]["base"] == to_mib_nearest(gpu.base_bytes + gpu.nccl_alone_bytes)


OWN_DATA = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Normalize(nn.Module):
        def forward(self, picture):
            return (picture - 0.5) / 0.5

    class Boxes(Dataset):
        scale = Normalize()

        def __len__(self):
            return 40

        def __getitem__(self, index):
            boxes = torch.arange(12.0).reshape(4, 3)
            kept = boxes[boxes[:, 0] > 5]
            assert torch.equal(kept, boxes[2:]) and torch.equal(kept, boxes[torch.where(boxes[:, 0] > 5)[0]])
            assert torch.masked_select(boxes, boxes > 9.5).tolist() == [10.0, 11.0]
            assert torch.tensor([3, 1, 3]).unique().tolist() == [1, 3]
            picture = torch.zeros(3, 16, 16)
            picture[picture == 0] = 1.0
            assert picture.min() == 1
            return self.scale(picture), index % 10

    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = torch.arange(8) < 6
    for picture, label in DataLoader(Boxes(), 8):
        rows = model(picture.cuda())[kept]
        assert rows.shape == (6, 10)
        loss = nn.functional.cross_entropy(rows, label[kept].cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{loss:.4f} {loss.detach():6.2e} {loss}", "{:8.3f}".format(loss), format(rows.argmax(1)[0], "d"))
"""


def test_a_scripts_own_data_keep_their_values_and_transforms_are_not_its_model(tmp_path: Path) -> None:
    """What is chosen of real tensors is what a mask says; a module without weights may be called for one picture."""
    done = estimated(tmp_path, OWN_DATA, options=("--save", "m.rad"))
    assert (done.returncode, done.stderr) == (0, "")
    saved = SavedProfile.from_text((tmp_path / "m.rad").read_text(), path="m.rad")
    assert (saved.batch_size, saved.inputs) == (8, ("8x3x16x16:float32",))
    assert not any("mask" in warning for warning in saved.warnings)


MADE_THERE = """
    import torch
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    where = model.weight.device
    for _ in range(5):
        bias = torch.tensor([1.0], device=0, requires_grad=True)
        made = [
            torch.tensor([1.0, 2.0], device="cuda"),
            torch.as_tensor([1.0], dtype=torch.float64, device=where),
            torch.as_tensor(model.weight),
            torch.asarray([1, 2], device="cuda"),
            model.weight.new_tensor([1.0]),
            bias,
        ]
        assert all(one.is_cuda for one in made)
        assert not torch.tensor([1.0]).is_cuda and not torch.tensor([1.0], device="cpu").is_cuda
        assert [one.dtype for one in made[1:5]] == [torch.float64, torch.float32, torch.int64, torch.float32]
        assert bias.is_leaf and bias.requires_grad
        optimizer.zero_grad()
        (model(torch.randn(8, 4).cuda()).sum() * bias).sum().backward()
        optimizer.step()
"""


def test_numbers_that_are_made_on_the_gpu_are_there(tmp_path: Path) -> None:
    """Releases before 2.2 ask the driver for a GPU where numbers are made on one; the script checks what it gets."""
    done = estimated(tmp_path, MADE_THERE)
    assert (done.returncode, done.stderr) == (0, "")


BY_HAND = """
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)).cuda()
    while True:
        model.zero_grad()
        model(torch.rand(4, 8, device="cuda")).sum().backward()
        for weight in model.parameters():
            weight.data.add_(weight.grad, alpha=-0.1)
"""


def test_a_script_without_an_optimizer_is_reported_so_and_ended_soon(tmp_path: Path) -> None:
    done = estimated(tmp_path, BY_HAND)
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert "without an optimizer of torch.optim" in answer["warnings"][0]
    assert answer["estimator"] == "rad"


def test_what_stands_in_for_torchs_calls_is_called_as_their_own_are() -> None:
    """By position or by the names of their arguments."""
    streams = Streams(Recorder(Workspaces()))
    answers = {**device._CUDA_ANSWERS, **pretend._CUDA, **streams.of_cuda()}
    tried = 0
    for name in sorted(answers.keys() & vars(torch.cuda).keys()):
        try:
            parameters = inspect.signature(getattr(torch.cuda, name)).parameters.values()
        except ValueError:  # a class of C++
            continue
        named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        answers[name](**dict.fromkeys(named))
        tried += len(named)
    assert tried > 20
    reported = (
        "stream_id",
        "device_index",
        "device_type",
    )  # what operators of fully_shard get a stream
    assert all(isinstance(getattr(streams.current, name), int) for name in reported)


TENSOR_PARALLEL = """
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (2,))
    model = nn.Sequential(nn.Linear(64, 4096, bias=False), nn.ReLU(), nn.Linear(4096, 64, bias=False)).cuda()
    model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.rand(16, 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_rank_of_a_tensor_parallel_script_holds_its_part(tmp_path: Path) -> None:
    """A mesh of devices makes its group itself, by a name that it took before anything was replaced."""
    (tmp_path / "train.py").write_text(textwrap.dedent(TENSOR_PARALLEL))
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "train.py",
    ]
    command = [sys.executable, "-c", MAIN, "--save", "m.rad", "--json", "--", *launcher]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (profile,) = SavedProfile.from_text((tmp_path / "m.rad").read_text(), path="m.rad").profiles
    assert (profile.parameters, profile.gpus) == (2 * 64 * 4096 // 2, 2)

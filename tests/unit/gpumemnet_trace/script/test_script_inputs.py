"""What a script's model was called with: the batch that trains, not what a constructor finds sizes with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traced import estimated, saved

pytest.importorskip("torch")

from gpumemnet.tracing.script.failures import AFTER_READING

TRIES = """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
            self.head = nn.LazyLinear(10) if LAZY else nn.Linear(self.features(torch.zeros(1, 3, 32, 32)).shape[1], 10)

        def forward(self, x):
            return self.head(self.features(x))

    helper, model = nn.Linear(4, 4).cuda(), Model()
    model(torch.zeros(3, 3, 32, 32))
    model = model.cuda()
    model(torch.zeros(2, 3, 32, 32, device="cuda"))  # as torchsummary does
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        helped = helper(torch.rand(7, 4, device="cuda")).mean()
        sgd.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.rand(16, 3, 32, 32).cuda()), torch.zeros(16).long().cuda())
        (loss + helper(torch.rand(5, 4, device="cuda")).mean() + helped).backward()
        sgd.step()
"""


@pytest.mark.parametrize("lazy", [False, True])
def test_the_batch_is_that_of_the_largest_models_last_call(tmp_path: Path, lazy: bool) -> None:
    _, found = saved(tmp_path, TRIES.replace("LAZY", str(lazy)))
    assert found.inputs == ("16x3x32x32:float32",)
    assert found.profiles[0].batch_size == 16


MASTER = """
    import torch

    model = torch.nn.Linear(512, 512).cuda().half()
    master = torch.nn.Parameter(torch.cat([p.detach().flatten() for p in model.parameters()]).float())
    adam = torch.optim.AdamW([master])
    for _ in range(4):
        model.zero_grad()
        model(torch.rand(4, 512, device="cuda").half()).sum().backward()
        master.grad = torch.cat([p.grad.flatten() for p in model.parameters()]).float()
        adam.step()
"""


def test_a_model_whose_copy_in_32_bits_is_trained_is_found(tmp_path: Path) -> None:
    _, found = saved(tmp_path, MASTER)
    (profile,) = found.profiles
    assert (found.model, profile.parameters, profile.precision) == ("Linear", 513 * 512, "bf16")


PERIODS = """
    import torch

    model = torch.nn.Linear(8, 8).cuda()
    adam = torch.optim.Adam(model.parameters())
    for _ in range(4):
        found = model(torch.rand(4, 8, device="cuda"))
        period = 8 // int(found.topk(2).indices.cpu().numpy()[0].max())
"""


def test_a_failure_after_values_were_read_says_what_they_are(tmp_path: Path) -> None:
    done = estimated(tmp_path, PERIODS)
    assert AFTER_READING in json.loads(done.stdout)["warnings"][0]


GONE = """
    import torch, weakref

    class Held:
        pass

    proxies = [weakref.proxy(Held()) for _ in range(3)]  # what is gone by now
    model = torch.nn.Linear(8, 8).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.rand(4, 8, device="cuda")).sum().backward()
        sgd.step()
"""


def test_what_is_gone_behind_a_weak_proxy_is_passed_over(tmp_path: Path) -> None:
    _, found = saved(tmp_path, GONE)
    assert found.model == "Linear"


LABELS_FIRST = """
    import torch
    from torch import nn

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(100, 64), nn.Linear(64, 2)

        def forward(self, input_ids=None, attention_mask=None, labels=None):
            found = self.head(self.embed(input_ids).mean(1))
            return nn.functional.cross_entropy(found, labels)

    model = Words().cuda()
    adam = torch.optim.Adam(model.parameters())
    for _ in range(4):
        ones = torch.ones(8, 32).long().cuda()
        batch = {"labels": ones[:, 0], "attention_mask": ones, "input_ids": ones}
        adam.zero_grad()
        CALL
        loss.backward()
        adam.step()
"""


BY_NAME = "loss = model(**batch)"
AS_ONE = """
        class Whole(nn.Module):
            words = model

            def forward(self, batch):
                return self.words(**batch)

        whole = whole if _ else Whole()
        loss = whole(batch)
"""


@pytest.mark.parametrize("call", [BY_NAME, AS_ONE], ids=["by name", "as one dictionary"])
def test_tokens_are_counted_where_a_batch_has_its_labels_first(tmp_path: Path, call: str) -> None:
    _, found = saved(tmp_path, LABELS_FIRST.replace("CALL", call.strip()))
    assert (found.profiles[0].batch_size, found.profiles[0].seq_len) == (8, 32)


GRAPH = """
    import torch

    class Graph:
        def __init__(self):
            self.store = {"x": torch.rand(500, 16).cuda(), "edges": torch.zeros(2, 3000).long().cuda()}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.nodes = torch.nn.Parameter(torch.rand(500, 16))
            self.layer = torch.nn.Linear(16, 4)

        def forward(self, *given):
            return self.layer(given[0].store["x"] if given else self.nodes)

    net, graph = Net().cuda(), Graph()
    adam = torch.optim.Adam(net.parameters())
    for _ in range(4):
        adam.zero_grad()
        net(GIVEN).sum().backward()
        adam.step()
"""


@pytest.mark.parametrize(("given", "samples"), [("graph", 500), ("", 1)], ids=["an object", "nothing"])
def test_a_model_that_is_called_with_no_tensor_is_traced(tmp_path: Path, given: str, samples: int) -> None:
    _, found = saved(tmp_path, GRAPH.replace("GIVEN", given))
    assert found.profiles[0].batch_size == samples
    assert bool(found.inputs) == bool(given)


RESIZED = """
    import torch

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1)).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.rand(64, 3, 64, 64), batch_size=8)
    for step, images in enumerate(loader):
        for crop in CROPS:
            small = torch.nn.functional.interpolate(images, size=crop)
            sgd.zero_grad()
            model(small.cuda()).sum().backward()
        sgd.step()
"""


@pytest.mark.parametrize(
    ("crops", "inputs", "reported"),
    [
        ("[32 + 16 * (step % 2)]", "8x3x48x48:float32", "2.25 times"),
        ("[48 - 16 * (step % 2)]", "8x3x48x48:float32", "2.25 times"),
        ("[48, 32]", "8x3x48x48:float32", ""),
        ("[48]", "8x3x48x48:float32", ""),
    ],
    ids=["grows", "shrinks", "two in each step", "alike"],
)
def test_a_loop_that_resizes_its_batches_is_reported(
    tmp_path: Path, crops: str, inputs: str, reported: str
) -> None:
    _, found = saved(tmp_path, RESIZED.replace("CROPS", crops))
    said = [each for each in found.warnings if "other sizes in other steps" in each]
    assert len(said) == bool(reported) and all(reported in each for each in said)
    assert found.inputs == (inputs,)


COPIES = """
    import copy, torch
    from torch import nn

    class Named(nn.Parameter):
        def __new__(cls, data, requires_grad=True, title=""):
            made = torch.Tensor._make_subclass(cls, data, requires_grad)
            made.title = title
            return made

    net = nn.Linear(512, 512).cuda()
    kind = type(net.weight)
    net.weight = kind(net.weight.data.clone(), requires_grad=net.weight.requires_grad)
    net.bias = type(net.bias)(net.bias.data)
    assert isinstance(net.weight, nn.Parameter) and len(list(net.parameters())) == 2
    assert not kind(net.bias.data, False).requires_grad
    named = Named(net.bias.data, title="bias")
    again = type(named)(named.data, requires_grad=False, title="other")
    assert isinstance(again, Named) and again.title == "other" and again.is_cuda and not again.requires_grad
    for copied in (copy.copy(net.weight), copy.copy(net).weight):
        assert isinstance(copied, nn.Parameter) and copied.requires_grad and copied.is_cuda
        assert copied.shape == net.weight.shape
    adam = torch.optim.Adam(net.parameters())

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, n):
            return torch.rand(512).cuda()

    for rows in torch.utils.data.DataLoader(Rows(), batch_size=8):
        adam.zero_grad()
        net(copy.copy(rows)).sum().backward()
        adam.step()
"""


def test_parameters_and_batches_on_the_gpu_are_copied(tmp_path: Path) -> None:
    """By their class, as diffusers does; by `copy`; and by a loader whose batch is a single tensor."""
    _, found = saved(tmp_path, COPIES)
    assert (found.profiles[0].parameters, found.inputs) == (513 * 512, ("8x512:float32",))


ON_META = """
    import torch
    from torch import nn

    with torch.device("meta"):
        large = nn.Linear(4096, 4096)
    assert large.weight.is_meta and large.weight.device.type == "meta" and not large.weight.is_cuda
    shape = large(torch.empty(8, 4096, device="meta")).sum(1, keepdim=True).shape
    assert shape == (8, 1) and torch.zeros_like(large.weight).is_meta
    large.zeros = torch.zeros(4096, 4096, device="meta")
    there = torch.rand(64, 512, device="cuda")
    assert there.to("meta").is_meta and torch.empty_like(there, device="meta").is_meta and there.is_cuda
    assert nn.Linear(64, 64, device="cuda").to("meta").weight.is_meta
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))
    model = model.to_empty(device="cuda")
    assert model[0].weight.is_cuda and not model[0].weight.is_meta
    del there
    adam = torch.optim.Adam(model.parameters())
    for _ in range(4):
        adam.zero_grad()
        model(torch.rand(8, 512, device="cuda")).sum().backward()
        adam.step()
"""


def test_what_a_script_makes_on_meta_takes_no_gpu_memory(tmp_path: Path) -> None:
    _, found = saved(tmp_path, ON_META)
    (profile,) = found.profiles
    assert profile.parameters == 2 * 513 * 512
    assert profile.parameter_bytes + profile.saved_bytes < 6 << 20


LENGTHS = """
    import torch
    from torch import nn

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.cells = nn.Embedding(100, 64), nn.LSTM(64, 512)

        def forward(self, words, state):
            return self.cells(self.embed(words), state)

    model = Words().cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    state = (torch.zeros(1, 8, 512).cuda(), torch.zeros(1, 8, 512).cuda())  # many times larger than the words
    for step in range(100):
        words = torch.zeros(STEPS[min(step, 3)], 8).long().cuda()
        found, state = model(words, tuple(each.detach() for each in state))
        sgd.zero_grad()
        found.sum().backward()
        sgd.step()
"""


@pytest.mark.parametrize(("lengths", "times"), [("[16, 24, 64, 32]", "4.00 times"), ("[16, 16, 16, 16]", "")])
def test_lengths_that_change_under_a_large_state_are_reported(
    tmp_path: Path, lengths: str, times: str
) -> None:
    _, found = saved(tmp_path, LENGTHS.replace("STEPS", lengths))
    said = [each for each in found.warnings if "other sizes in other steps" in each]
    assert len(said) == bool(times) and all(times in each for each in said)
    assert found.inputs[0] == ("64x8:int64" if times else "16x8:int64")


JUDGED = """
    import torch
    from torch import nn

    judge = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3)).cuda().requires_grad_(False)
    model = nn.Conv2d(3, 3, 3, padding=1).cuda()
    adam = torch.optim.Adam(model.parameters())
    style = judge(torch.rand(1, 3, 64, 64, device="cuda")).mean()
    for _ in range(6):
        adam.zero_grad()
        (judge(model(torch.rand(2, 3, 32, 32, device="cuda"))).mean() - style).pow(2).backward()
        adam.step()
"""


def test_a_frozen_network_does_not_count_as_the_model(tmp_path: Path) -> None:
    _, found = saved(tmp_path, JUDGED)
    assert (found.warnings, found.inputs) == ((), ("2x3x32x32:float32",))


TOKENS = """
    import sys, torch
    from torch import nn

    def calls(act):
        made = []
        sys.setprofile(lambda _, event, about: made.append(about) if event == "call" else None)
        act()
        sys.setprofile(None)
        return len(made)

    ids, weights = torch.zeros(9, dtype=torch.int64), torch.rand(3, 2, requires_grad=True)
    def act():
        ids[4] = 7
        ids[5]
    assert calls(act) < 20, calls(act)
    assert ids.tolist() == [0, 0, 0, 0, 7, 0, 0, 0, 0] and ids[4].item() == 7
    assert weights[1].grad_fn is not None

    model = nn.Linear(9, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(ids.float().cuda()[None]).sum().backward()
        optimizer.step()
"""


def test_a_text_is_read_token_by_token_as_fast_as_without_a_trace(tmp_path: Path) -> None:
    done = estimated(tmp_path, TOKENS)
    assert (done.returncode, done.stderr) == (0, "")

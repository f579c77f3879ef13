"""A generator that a script makes on the GPU: no driver is queried, and its tensors are on the GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gpumemnet.tracing.trace.cuda.device import pretended_cuda  # noqa: E402


@pytest.mark.parametrize("device", ["cuda", "cuda:0", 0], ids=str)
def test_a_generator_on_the_gpu_gives_tensors_on_it(device: object) -> None:
    with pretended_cuda():
        generator = torch.Generator(device=device).manual_seed(3)
        assert generator.device.type == "cuda"
        made = [
            torch.randn(4, 8, device="cuda", generator=generator),
            torch.empty(4, 8, device="cuda").normal_(generator=generator),
            torch.randint(0, 10, (4, 8), generator=generator, device="cuda"),
        ]
        assert [(tensor.device.type, tuple(tensor.shape)) for tensor in made] == [("cuda", (4, 8))] * 3


def test_a_generator_on_the_cpu_is_what_it_was() -> None:
    plain = torch.randperm(10, generator=torch.Generator().manual_seed(3)).tolist()
    with pretended_cuda():
        generator = torch.Generator().manual_seed(3)
        assert generator.device.type == "cpu"
        assert isinstance(generator, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
    assert torch.randperm(10, generator=generator).tolist() == plain

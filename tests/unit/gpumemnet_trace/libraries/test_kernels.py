"""Scripts whose libraries bring kernels of their own, and products of another type than their factors."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpumemnet.tracing.script.libraries import kernels  # noqa: E402

MAIN = "from gpumemnet.cli import main; main()"


def estimated(folder: Path, script: str) -> int:
    (folder / "train.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "-c", MAIN, "--json", "--", sys.executable, "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["estimator"] == "trace", answer
    return int(answer["estimate_mib"])


class KernelInterface:
    """As triton/runtime/jit.py launches a kernel, in 2.1 to 3.6."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        raise AssertionError("libcuda.so cannot found!")

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)


class Autotuner(KernelInterface):
    """Runs what it tunes."""


class Driver:
    """As triton/runtime/driver.py keeps its driver."""

    active: Any = None

    def set_active(self, driver: Any) -> None:
        self.active = driver


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Triton's two modules that count, and as many more as its import makes; the real one needs no GPU but 200 MB."""
    launch = KernelInterface.__getitem__
    jit, driver = SimpleNamespace(KernelInterface=KernelInterface), Driver()
    runtime = SimpleNamespace(jit=jit, driver=driver)
    modules = {
        "triton": SimpleNamespace(runtime=runtime),
        "triton.runtime": runtime,
        "triton.runtime.jit": jit,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield runtime
    KernelInterface.__getitem__ = launch  # type: ignore[method-assign]


def test_no_kernel_in_triton_is_launched_and_libraries_hear_of_a_gpu(triton: Any) -> None:
    with pytest.raises(AssertionError, match="libcuda"):
        KernelInterface()[(4,)](1, 2)
    kernels.left_out()
    assert KernelInterface()[(4,)](1, 2, BLOCK=64) is None
    assert Autotuner()[lambda meta: (meta["BLOCK"],)](1, 2) is None
    active = triton.driver.active
    assert active.utils.get_device_properties(active.get_current_device())["multiprocessor_count"] == 132
    assert active.get_active_torch_device() == torch.device("cuda:0")


@pytest.mark.skipif(
    "dtype" not in torch.ops.aten.mm.overloads(), reason="PyTorch before 2.8 has no such products"
)
def test_a_product_in_another_type_than_its_factors_is_followed(tmp_path: Path) -> None:
    script = """
        import torch
        from torch import nn

        model = nn.Linear(64, 64).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        half = dict(device="cuda", dtype=torch.bfloat16)
        a, b = torch.randn(2048, 512, **half), torch.randn(512, 4096, **half)
        for _ in range(3):
            held = torch.mm(a, b, out_dtype=torch.float32)
            held = torch.addmm(held, a, b, out_dtype=torch.float32)
            torch.addmm(held, a, b, out_dtype=torch.float32, out=held)
            both = torch.baddbmm(held[None], a[None], b[None], out_dtype=torch.float32)
            assert both.shape == (1, 2048, 4096) and both.dtype == held.dtype == torch.float32
            model(torch.randn(4, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    none = script.replace("2048, 512", "0, 512").replace("(1, 2048, 4096)", "(1, 0, 4096)")
    assert estimated(tmp_path, script) - estimated(tmp_path, none) >= 2 * 32

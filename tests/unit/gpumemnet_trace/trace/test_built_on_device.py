"""A model that is built on a device is all there, whatever its authors call their tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gpumemnet.learning.dataset.config import Configuration  # noqa: E402
from gpumemnet.learning.dataset.running.measure import build_model  # noqa: E402
from gpumemnet.learning.dataset.workload import Workload  # noqa: E402
from gpumemnet.names import Precision  # noqa: E402


class NamesItsType(torch.nn.Module):
    """XLNet makes its projections so."""

    def __init__(self) -> None:
        super().__init__()
        self.q = torch.nn.Parameter(torch.FloatTensor(4, 4))
        self.linear = torch.nn.Linear(4, 4)


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_every_parameter_is_on_the_device_in_its_precision(precision: str, dtype: torch.dtype) -> None:
    work = Workload(
        build=NamesItsType, inputs=(), target=None, loss="own", set_checkpointing=lambda model: None
    )
    config = Configuration(
        seed=1, index=1, family="real", style="", arch={}, batch_size=1, precision=Precision(precision)
    )
    model = build_model(config, work, torch.device("meta"), on_cpu=False)
    assert {(p.device.type, p.dtype) for p in model.parameters()} == {("meta", dtype)}

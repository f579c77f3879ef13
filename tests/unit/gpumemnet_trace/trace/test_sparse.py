"""Sparse gradients: a table's gradient holds the rows that a batch uses, and its optimizer the states of all rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from traced import saved

torch = pytest.importorskip("torch")

from gpumemnet.units import MIB  # noqa: E402

ROWS, WIDTH = 100_000, 64
TABLE = ROWS * WIDTH * 4
SCRIPT = f"""
    import torch

    table = torch.nn.KIND({ROWS}, {WIDTH}, sparse=True).cuda()
    optimizer = torch.optim.OPTIMIZER(table.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        table(torch.randint(0, {ROWS}, (128, 10), device="cuda")).sum().backward()
        assert table.weight.grad.is_sparse
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("kind", "optimizer", "tables"),
    [
        ("Embedding", "SGD", 1),
        ("EmbeddingBag", "SGD", 1),
        ("Embedding", "Adagrad", 2),
        ("EmbeddingBag", "Adagrad", 2),
        ("Embedding", "SparseAdam", 3),
    ],
)
def test_a_sparse_gradient_takes_the_rows_of_a_batch(
    tmp_path: Path, kind: str, optimizer: str, tables: int
) -> None:
    _, found = saved(tmp_path, SCRIPT.replace("KIND", kind).replace("OPTIMIZER", optimizer))
    (profile,) = found.profiles
    more = profile.allocated_bytes - tables * TABLE
    assert 1280 * WIDTH * 4 <= more <= 4 * MIB
    assert profile.optimizer_bytes == pytest.approx((tables - 1) * TABLE, abs=64)

from __future__ import annotations

import json
from collections import Counter

import pytest

pytest.importorskip("torch")

from gpumemnet.learning.dataset.config import Configuration
from gpumemnet.learning.dataset.generate import FAMILIES, generate
from gpumemnet.names import OPTIMIZERS, PRECISIONS


def test_a_configuration_depends_on_its_numbers_alone() -> None:
    assert generate(1, 7) == generate(1, 7)
    assert generate(1, 7) != generate(1, 8)
    assert generate(1, 7) != generate(2, 7)


def test_a_variant_is_the_same_model_with_another_batch_size() -> None:
    pairs = [(generate(1, i), generate(1, i, 1)) for i in range(50)]
    assert all(
        a.arch == b.arch and a.optimizer == b.optimizer and a.precision == b.precision for a, b in pairs
    )
    assert any(a.batch_size != b.batch_size for a, b in pairs)


def test_a_configuration_survives_json() -> None:
    config = generate(1, 3)
    assert Configuration.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_every_family_style_optimizer_and_precision_is_drawn() -> None:
    configs = [generate(5, i) for i in range(3000)]
    styles = {(name, style) for name, module in FAMILIES.items() for style in module.STYLES}
    assert {(c.family, c.style) for c in configs} == styles
    assert {c.optimizer for c in configs} == set(OPTIMIZERS)
    assert {c.precision for c in configs} == set(PRECISIONS)
    assert {c.implementation for c in configs} == {"default", "foreach", "fused", "forloop"}
    shares = Counter(c.family for c in configs)
    assert 0.26 < shares["transformer"] / len(configs) < 0.32


def test_batch_sizes_stay_within_what_the_family_allows() -> None:
    assert all(generate(1, i).batch_size >= 1 for i in range(500))

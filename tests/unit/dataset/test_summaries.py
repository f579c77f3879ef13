from __future__ import annotations

import contextlib
import io
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
torchsummary = pytest.importorskip("torchsummary")
pytest.importorskip("torchinfo")

from gpumemnet.learning.dataset.generate import generate  # noqa: E402
from gpumemnet.learning.dataset.models import cnn, mlp  # noqa: E402
from gpumemnet.learning.dataset.running.need import estimate_need  # noqa: E402
from gpumemnet.learning.dataset.summaries import texts, torchsummary_text  # noqa: E402


def test_the_torchsummary_text_is_what_torchsummary_prints() -> None:
    seen = 0
    for index in range(400):
        config = generate(11, index)
        if (
            config.family not in ("mlp", "cnn")
            or estimate_need(replace(config, batch_size=2)).total_bytes > 1.2e9
        ):
            continue
        module = {"mlp": mlp, "cnn": cnn}[config.family]
        model = module.build(config.style, config.arch)
        shape = module.inputs(config.arch)[0].shape
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            torchsummary.summary(model, shape, device="cpu")
        with torch.no_grad():
            rads = torchsummary_text(model, (torch.rand(2, *shape),))
        assert rads == out.getvalue()
        seen += 1
        if seen == 6:
            return
    pytest.fail("too few small models were drawn")


def test_texts_come_from_the_configuration_alone_without_memory() -> None:
    config = next(c for c in (generate(1, i) for i in range(99)) if c.family == "cnn")
    made = texts(config)
    assert made == texts(config)
    assert set(made) == {"module_repr", "torchinfo", "torchsummary"}


def test_token_models_have_no_torchsummary_text_as_in_life() -> None:
    config = next(c for c in (generate(1, i) for i in range(99)) if c.style == "encoder")
    assert set(texts(config)) == {"module_repr", "torchinfo"}

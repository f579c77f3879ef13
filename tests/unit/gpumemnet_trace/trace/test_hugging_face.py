"""`hf:PATH`: models from a config.json alone, compared with what can be counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpumemnet.errors import TraceError
from gpumemnet.tracing.trace import hugging_face, trace_module
from gpumemnet.training import TrainingSetup

pytest.importorskip("torch")

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}
LLAMA_PARAMETERS = 2 * 1000 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160 + 2 * 64) + 64
"""Embedding and head; per layer query, output, key and value, the three of the MLP and two norms; the last norm."""


def config(folder: Path, tree: object) -> str:
    (folder / "config.json").write_text(json.dumps(tree))
    return f"hf:{folder}"


def setup(**how: Any) -> TrainingSetup:
    return TrainingSetup(**({"batch_size": 4, "seq_len": 32} | how))


def test_a_language_model_has_the_bytes_that_its_config_comes_to(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = trace_module(config(tmp_path, LLAMA), inputs=(), setup=setup(optimizer="adamw"))
    assert found.parameters == LLAMA_PARAMETERS
    parts = found.breakdown_bytes
    assert 4 * LLAMA_PARAMETERS <= parts["parameters"] <= 4 * LLAMA_PARAMETERS + 4096  # rotary frequencies
    assert parts["optimizer"] == 8 * LLAMA_PARAMETERS
    half = trace_module(config(tmp_path, LLAMA), inputs=(), setup=setup(optimizer="sgd", precision="bf16"))
    assert half.breakdown_bytes["parameters"] == parts["parameters"] / 2


def test_checkpointing_is_its_own_switch(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    spec = config(tmp_path, LLAMA | {"num_hidden_layers": 8})
    plain, saved = (
        trace_module(spec, inputs=(), setup=setup(seq_len=256, gradient_checkpointing=on))
        for on in (False, True)
    )
    assert saved.breakdown_bytes["activations"] < plain.breakdown_bytes["activations"] / 2


def test_pictures_and_sequences_have_inputs_of_their_own(tmp_path: Path) -> None:
    vit = {"architectures": ["ViTForImageClassification"], "image_size": 224}
    assert hugging_face.inputs(config(tmp_path, vit)) == ("pixel_values=Bx3x224x224", "labels=B:int64")
    bert = {"architectures": ["BertForSequenceClassification"], "vocab_size": 30522}
    assert hugging_face.inputs(config(tmp_path, bert)) == ("input_ids=BxS:int64", "labels=B:int64")


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"hidden_size": 4}, "names no model"),
        ([1], "contains no object"),
        ({"architectures": ["CLIPModel"]}, "give what CLIPModel is trained on"),
    ],
)
def test_what_is_no_config_says_so_in_one_line(tree: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=words) as caught:
        trace_module(config(tmp_path, tree), inputs=(), setup=setup())
    assert "\n" not in str(caught.value)


def test_no_config_at_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no such config: .*config\.json"):
        trace_module(f"hf:{tmp_path / 'nowhere'}", inputs=(), setup=setup())


def test_code_next_to_the_config_is_not_run(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "mine.py").write_text("raise SystemExit('was run')")
    tree = {"architectures": ["Mine"], "model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}}
    with pytest.raises(TraceError, match="has no Mine"):
        trace_module(config(tmp_path, tree), inputs=("input_ids=BxS:int64",), setup=setup())

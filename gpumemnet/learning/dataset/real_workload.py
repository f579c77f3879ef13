"""Real models of torchvision, timm and transformers as workloads, with random weights and no downloads."""

from __future__ import annotations

from typing import Any

from torch import nn

from gpumemnet.learning.dataset.config import Configuration, TensorSpec
from gpumemnet.learning.dataset.workload import Workload

CLASSES = 1000


def real_workload(config: Configuration) -> Workload:
    """Return the workload of a configuration of the family "real"."""
    source, name = config.arch["source"], config.arch["name"]
    if source == "transformers":
        return _transformers_workload(
            name, config.arch["task"], config.arch["size"], config.arch.get("config", {})
        )
    image = TensorSpec(kind="float", shape=(3, config.arch["size"], config.arch["size"]))
    return Workload(
        build=lambda: _timm(name) if source == "timm" else _torchvision(name),
        inputs=(image,),
        target=TensorSpec(kind="int", shape=(), high=CLASSES),
        loss="cross_entropy",
        set_checkpointing=lambda model: model.set_grad_checkpointing(True),  # type: ignore[operator]
    )


def _torchvision(name: str) -> nn.Module:
    import torchvision

    # Auxiliary heads return several outputs; only plain classification is measured here.
    extra = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model: nn.Module = torchvision.models.get_model(name, weights=None, **extra)
    return model


def _timm(name: str) -> nn.Module:
    import timm

    model: nn.Module = timm.create_model(name, pretrained=False)
    return model


def _transformers_workload(name: str, task: str, size: int, changes: dict[str, Any]) -> Workload:
    config = _transformers_config(name, task)
    for key, value in changes.items():
        setattr(config, key, value)
    if task == "ImageClassification":
        inputs = {
            "pixel_values": TensorSpec(kind="float", shape=(3, size, size)),
            "labels": TensorSpec(kind="int", shape=(), high=CLASSES),
        }
    elif task == "SemanticSegmentation":
        inputs = {
            "pixel_values": TensorSpec(kind="float", shape=(3, size, size)),
            "labels": TensorSpec(kind="int", shape=(size, size), high=150),
        }
    else:
        vocab = config.vocab_size
        tokens = TensorSpec(kind="int", shape=(size,), high=vocab)
        labels = TensorSpec(kind="int", shape=(), high=2) if task == "SequenceClassification" else tokens
        inputs = {"input_ids": tokens, "labels": labels}

    def build() -> nn.Module:
        import transformers

        make = getattr(transformers, f"AutoModelFor{task}")
        model: nn.Module = make.from_config(config)
        return model

    return Workload(
        build=build,
        inputs=inputs,
        target=None,
        loss="own",
        set_checkpointing=lambda model: model.gradient_checkpointing_enable(),  # type: ignore[operator]
    )


def _transformers_config(name: str, task: str) -> Any:
    """Return the library's default configuration of the model, or a published small one."""
    import transformers as t

    special: dict[str, Any] = {
        "gpt_neo": lambda: t.GPTNeoConfig(
            hidden_size=768, num_layers=12, attention_types=[[["global", "local"], 6]]
        ),
        "bloom": lambda: t.BloomConfig(hidden_size=1024, n_layer=24, n_head=16),
        "pythia": lambda: t.GPTNeoXConfig(
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            vocab_size=50304,
        ),
        "llama-small": lambda: t.LlamaConfig(
            hidden_size=2048,
            num_hidden_layers=16,
            num_attention_heads=32,
            num_key_value_heads=8,
            intermediate_size=5632,
        ),
        "qwen2-small": lambda: t.Qwen2Config(
            hidden_size=896,
            num_hidden_layers=24,
            num_attention_heads=14,
            num_key_value_heads=2,
            intermediate_size=4864,
        ),
        "ctrl": lambda: t.CTRLConfig(n_layer=12, vocab_size=50000),
        "esm": lambda: t.EsmConfig(vocab_size=33, pad_token_id=1, mask_token_id=32),
        "falcon": lambda: t.FalconConfig(hidden_size=1024, num_hidden_layers=12, num_attention_heads=16),
        "gemma": lambda: t.GemmaConfig(
            hidden_size=1024,
            num_hidden_layers=10,
            num_attention_heads=8,
            num_key_value_heads=1,
            intermediate_size=8192,
            head_dim=128,
            vocab_size=64000,
        ),
        "gptj": lambda: t.GPTJConfig(n_embd=1280, n_layer=16, n_head=16, rotary_dim=32),
        "mpt": lambda: t.MptConfig(d_model=1024, n_heads=16, n_layers=16),
        "olmo2": lambda: t.Olmo2Config(
            hidden_size=1280,
            num_hidden_layers=14,
            num_attention_heads=16,
            num_key_value_heads=16,
            intermediate_size=5120,
        ),
        "phi": lambda: t.PhiConfig(hidden_size=1280, num_hidden_layers=16, num_attention_heads=20),
        "stablelm": lambda: t.StableLmConfig(
            hidden_size=1152, num_hidden_layers=18, num_attention_heads=16, num_key_value_heads=16
        ),
        "starcoder2": lambda: t.Starcoder2Config(
            hidden_size=1152, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=2
        ),
        "xmod": lambda: t.XmodConfig(default_language="en_XX"),
        "albert": lambda: t.AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072),
        "deberta-v2": lambda: t.DebertaV2Config(
            hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072
        ),
    }
    config = special[name]() if name in special else t.AutoConfig.for_model(name)
    if task in ("ImageClassification", "SemanticSegmentation"):
        config.num_labels = CLASSES if task == "ImageClassification" else 150
    if task == "SequenceClassification":
        config.num_labels = 2
    if task == "Seq2SeqLM":
        config.decoder_start_token_id = config.pad_token_id
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return config

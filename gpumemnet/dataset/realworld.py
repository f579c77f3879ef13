"""The held-out set: real models of torchvision, timm and transformers, with random weights, nothing downloaded.

No estimator is trained or tuned on these, and no generated configuration is a near twin of one (see splits.py).
"""

from __future__ import annotations

from typing import Any

from torch import nn

from gpumemnet.dataset.config import Configuration, TensorSpec
from gpumemnet.dataset.draw import Draw
from gpumemnet.dataset.workload import Workload
from gpumemnet.training import OPTIMIZERS, PRECISIONS

SEED = 2026
CLASSES = 1000

# (name, image size, usual batch size)
TORCHVISION: tuple[tuple[str, int, int], ...] = (
    ("alexnet", 224, 512),
    ("vgg11", 224, 128),
    ("vgg16_bn", 224, 96),
    ("resnet18", 224, 256),
    ("resnet50", 224, 192),
    ("resnet101", 224, 96),
    ("wide_resnet50_2", 224, 96),
    ("resnext50_32x4d", 224, 128),
    ("densenet121", 224, 96),
    ("googlenet", 224, 256),
    ("inception_v3", 299, 128),
    ("mobilenet_v2", 224, 256),
    ("mobilenet_v3_large", 224, 256),
    ("shufflenet_v2_x1_0", 224, 512),
    ("squeezenet1_1", 224, 256),
    ("mnasnet1_0", 224, 256),
    ("efficientnet_b0", 224, 192),
    ("efficientnet_v2_s", 300, 64),
    ("regnet_y_3_2gf", 224, 128),
    ("convnext_tiny", 224, 128),
    ("vit_b_16", 224, 128),
    ("swin_t", 224, 128),
    ("maxvit_t", 224, 48),
)
TIMM: tuple[tuple[str, int, int], ...] = (
    ("resnet34", 224, 256),
    ("resnetv2_50", 224, 128),
    ("seresnet50", 224, 128),
    ("ecaresnet50d", 224, 96),
    ("xception41", 299, 64),
    ("dpn68", 224, 128),
    ("ghostnet_100", 224, 256),
    ("tf_efficientnet_lite0", 224, 192),
    ("mixnet_s", 224, 128),
    ("nfnet_f0", 192, 64),
    ("deit_small_patch16_224", 224, 256),
    ("beit_base_patch16_224", 224, 64),
    ("cait_xxs24_224", 224, 64),
    ("mixer_b16_224", 224, 128),
    ("gmlp_s16_224", 224, 128),
    ("resmlp_24_224", 224, 128),
    ("poolformer_s12", 224, 128),
    ("coat_lite_tiny", 224, 96),
    ("pvt_v2_b1", 224, 96),
    ("twins_svt_small", 224, 96),
    ("convmixer_768_32", 224, 48),
    ("hrnet_w18", 224, 96),
)
# (name, task, sequence length or image size, usual batch size)
TRANSFORMERS: tuple[tuple[str, str, int, int], ...] = (
    ("bert", "MaskedLM", 512, 48),
    ("bert", "SequenceClassification", 128, 256),
    ("roberta", "SequenceClassification", 256, 96),
    ("distilbert", "SequenceClassification", 256, 128),
    ("albert", "MaskedLM", 256, 64),
    ("electra", "SequenceClassification", 512, 64),
    ("deberta-v2", "SequenceClassification", 256, 32),
    ("gpt2", "CausalLM", 1024, 16),
    ("gpt2", "CausalLM", 256, 64),
    ("gpt_neo", "CausalLM", 512, 8),
    ("opt", "CausalLM", 512, 32),
    ("bloom", "CausalLM", 512, 16),
    ("pythia", "CausalLM", 1024, 8),
    ("llama-small", "CausalLM", 1024, 8),
    ("qwen2-small", "CausalLM", 1024, 8),
    ("t5", "Seq2SeqLM", 256, 48),
    ("bart", "Seq2SeqLM", 256, 48),
    ("vit", "ImageClassification", 224, 128),
    ("swin", "ImageClassification", 224, 96),
    ("segformer", "SemanticSegmentation", 256, 32),
)
RUNS_PER_MODEL = 3


def realworld_configurations() -> list[Configuration]:
    """Return the held-out configurations: each model with a few drawn batch sizes, optimizers and precisions."""
    entries: list[dict[str, Any]] = []
    entries += [{"source": "torchvision", "name": n, "size": s, "most": b} for n, s, b in TORCHVISION]
    entries += [{"source": "timm", "name": n, "size": s, "most": b} for n, s, b in TIMM]
    entries += [
        {"source": "transformers", "name": n, "task": t, "size": s, "most": b} for n, t, s, b in TRANSFORMERS
    ]
    found: list[Configuration] = []
    for entry in entries:
        for _ in range(RUNS_PER_MODEL):
            index = len(found)
            d = Draw(SEED, index)
            most = entry["most"]
            batch = d.log_integer(max(1, most // 12), most * 2)
            if d.chance(0.7):
                batch = 2 ** (batch.bit_length() - 1)
            text = (
                entry["source"] == "transformers"
                and "Image" not in entry["task"]
                and "Sem" not in entry["task"]
            )
            can_checkpoint = entry["source"] != "torchvision" and entry["name"] not in NO_CHECKPOINTING
            found.append(
                Configuration(
                    seed=SEED,
                    index=index,
                    family="real",
                    style=f"{entry['source']}:{entry['name']}",
                    arch={k: v for k, v in entry.items() if k != "most"},
                    batch_size=batch,
                    seq_len=entry["size"] if text else None,
                    optimizer=d.choice(OPTIMIZERS),
                    precision=d.choice(PRECISIONS),
                    gradient_checkpointing=can_checkpoint and d.chance(0.12),
                )
            )
    return found


NO_CHECKPOINTING = (
    "albert",
    "hrnet_w18",
    "ghostnet_100",
    "coat_lite_tiny",
    "twins_svt_small",
    "xception41",
    "dpn68",
    "cait_xxs24_224",
    "poolformer_s12",
)


def real_workload(config: Configuration) -> Workload:
    """Return the workload of a held-out configuration."""
    source, name = config.arch["source"], config.arch["name"]
    if source == "transformers":
        return _transformers_workload(name, config.arch["task"], config.arch["size"])
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

    # Auxiliary heads return several outputs; plain classification is what is measured here.
    extra = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model: nn.Module = torchvision.models.get_model(name, weights=None, **extra)
    return model


def _timm(name: str) -> nn.Module:
    import timm

    model: nn.Module = timm.create_model(name, pretrained=False)
    return model


def _transformers_workload(name: str, task: str, size: int) -> Workload:
    config = _transformers_config(name, task)
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
    """Return the library's own default configuration of the model, or a published small one."""
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

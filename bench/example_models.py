"""Models, tokenizers, metrics and texts that Hugging Face's examples load: python bench/example_models.py FOLDER.

FOLDER is what `bench/example_data.py` made, and the environment must have transformers. `models/NAME` is what a hub has
under a name: the published configuration, drawn weights, and a tokenizer of 2,000 words; `text/` holds the files that
run_*.py read, and `home/hf` metrics that are never asked for a number, as a trace ends before the first evaluation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import example_data

WORDS = 2000
CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-base-uncased": ("BertConfig", "BertForMaskedLM", {}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {}),
    "t5-small": ("T5Config", "T5ForConditionalGeneration", {"decoder_start_token_id": 0, "is_gated_act": False}),
    "vit-base-patch16-224-in21k": ("ViTConfig", "ViTForImageClassification", {}),
    "opt-350m": (
        "OPTConfig",
        "OPTForCausalLM",
        {"hidden_size": 1024, "num_hidden_layers": 24, "ffn_dim": 4096, "num_attention_heads": 16,
         "word_embed_proj_dim": 512, "do_layer_norm_before": False},
    ),
    "tiny-llama": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {"hidden_size": 2048, "num_hidden_layers": 22, "intermediate_size": 5632, "num_attention_heads": 32,
         "num_key_value_heads": 4, "vocab_size": 32000},
    ),
}  # fmt: skip
"""By the name of its folder: the configuration's class, the model's, and what differs from the class' own defaults."""
METRICS = ("accuracy", "glue", "seqeval", "squad", "rouge", "sacrebleu", "f1", "mse", "mean_iou")
METRIC = """import datasets
import evaluate


class Unasked(evaluate.Metric):
    def _info(self):
        numbers = datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")})
        return evaluate.MetricInfo(description="", citation="", features=numbers)

    def _compute(self, predictions, references):
        raise AssertionError("a trace ends before it is evaluated")
"""


def tokenizer(folder: Path, *, causal: bool) -> None:
    """Write a tokenizer of whole words.

    Args:
        folder: The model's.
        causal: Whether a text ends by a token of its own and nothing stands in front.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "</s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *example_data.WORDS, *(f"w{n}" for n in range(WORDS))]
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    around = "$A </s>" if causal else "[CLS] $A [SEP]"
    ends = [(word, special.index(word)) for word in ("</s>", "[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single=around, pair=f"{around} $B:1 [SEP]:1", special_tokens=ends
    )
    PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", eos_token="</s>", bos_token="</s>",
        cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", model_max_length=512,
    ).save_pretrained(folder)  # fmt: skip


def weights(root: Path) -> None:
    """Write each model of CONFIGS.

    Args:
        root: Folder of the models.
    """
    import torch
    import transformers

    for name, (config, model, values) in CONFIGS.items():
        torch.manual_seed(0)
        made = getattr(transformers, model)(getattr(transformers, config)(**values))
        made.save_pretrained(root / name)
        if "Image" in model:
            transformers.ViTImageProcessor().save_pretrained(root / name)
        else:
            tokenizer(root / name, causal="CausalLM" in model or "LMHead" in model)


def texts(root: Path) -> None:
    """Write the files that run_*.py read: lines of JSON under the names of their columns.

    Args:
        root: Folder.
    """
    said = list(example_data.sentences(600))
    pairs = list(zip(said, reversed(said), strict=True))
    first = [one.split()[:4] for one in said]
    rows: dict[str, list[dict[str, Any]]] = {
        "pairs": [{"sentence1": one, "sentence2": two, "label": n % 2} for n, (one, two) in enumerate(pairs)],
        "summaries": [{"text": f"{one} {two}" * 12, "summary": two} for one, two in pairs],
        "translations": [{"translation": {"en": one, "ro": two}} for one, two in pairs],
        "words": [{"tokens": one, "ner_tags": [f"B-{word}" for word in one]} for one in first],
        "images": [
            {"image_path": str(path.absolute()), "caption": one}
            for path, one in zip(sorted(root.parent.glob("pets/*.jpg")), said, strict=False)
        ],
        "endings": [
            {"video-id": "", "fold-ind": "", "startphrase": one, "sent1": one, "sent2": two, "gold-source": "",
             "label": n % 4} | {f"ending{k}": said[(n + k) % len(said)] for k in range(4)}
            for n, (one, two) in enumerate(pairs)
        ],
    }  # fmt: skip
    root.mkdir(parents=True, exist_ok=True)
    for name, some in rows.items():
        (root / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
    questions = [
        {
            "id": str(n),
            "context": one * 8,
            "question": two,
            "answers": {"text": [one.split()[0]], "answer_start": [0]},
        }
        for n, (one, two) in enumerate(pairs)
    ]
    (root / "questions.json").write_text(json.dumps({"data": questions}), encoding="utf-8")
    (root / "text.txt").write_text("\n".join(said * 6) + "\n", encoding="utf-8")
    chats = root.parent / "chats"
    chats.mkdir(exist_ok=True)
    for split in ("train", "test"):
        lines = "".join(json.dumps({"text": f"{one} {two}" * 6}) + "\n" for one, two in pairs)
        (chats / f"{split}.jsonl").write_text(lines, encoding="utf-8")


def metrics(home: Path) -> None:
    """Write metrics into the cache where `evaluate` looks when it is offline.

    Args:
        home: A home folder, with its `hf`.
    """
    for name in METRICS:
        folder = (
            home / "hf" / "modules" / "evaluate_modules" / "metrics" / f"evaluate-metric--{name}" / ("0" * 64)
        )
        folder.mkdir(parents=True, exist_ok=True)
        for parent in (folder, *folder.parents[:3]):
            (parent / "__init__.py").touch()
        (folder / f"{name}.py").write_text(METRIC, encoding="utf-8")
        (folder / f"{name}.json").write_text(
            json.dumps({"original file path": name, "local file path": name})
        )


if __name__ == "__main__":
    data = Path(sys.argv[1])
    weights(data / "models")
    texts(data / "text")
    metrics(data / "home")
    (data / "home" / "nltk_data" / "tokenizers" / "punkt").mkdir(parents=True, exist_ok=True)

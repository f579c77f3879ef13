"""Tiny data sets for packages' own trainers: ENVIRONMENT/bin/python bench/trainer_data.py FOLDER.

FOLDER is what `bench/repository_data.py` filled. What the trainers in bench/repositories.txt read beyond that, in the
layout that each documents: CamVid's masks, Cora and MUTAG as graph files, a segmentation task that nnU-Net has already
planned and preprocessed, small Llamas with drawn weights as torchtune and LitGPT load them, and their settings.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from example_data import below, image, sentences

NNUNET = {
    "nnUNet_raw": "nnunet/raw",
    "nnUNet_preprocessed": "nnunet/preprocessed",
    "nnUNet_results": "nnunet/results",
}
"""Variables of the environment, and the folders below FOLDER that they name."""
_LLAMA = {"embed": 512, "layers": 4, "heads": 8, "groups": 4, "inner": 1536, "vocabulary": 128_256}
"""A small Llama 3.2: its vocabulary is the published one, as its tokenizer numbers special tokens from 128,000 on."""
RECIPE = """output_dir: out
model:
  _component_: torchtune.models.llama3_2.{builder}
  vocab_size: {vocabulary}
  num_layers: {layers}
  num_heads: {heads}
  num_kv_heads: {groups}
  embed_dim: {embed}
  intermediate_dim: {inner}
  max_seq_len: 2048
{lora}tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: llama/tokenizer.model
  max_seq_len: 512
dataset: {{_component_: torchtune.datasets.alpaca_dataset, source: json, data_files: instructions.json, packed: False}}
seed: 0
shuffle: True
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: llama
  checkpoint_files: [model.safetensors]
  recipe_checkpoint: null
  output_dir: out
  model_type: LLAMA3_2
resume_from_checkpoint: False
save_adapter_weights_only: False
batch_size: 4
epochs: 1
optimizer: {{_component_: torch.optim.AdamW, fused: True, lr: 2e-5}}
optimizer_in_bwd: {within}
lr_scheduler: {{_component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup, num_warmup_steps: 10}}
loss: {{_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}}
max_steps_per_epoch: null
gradient_accumulation_steps: {accumulated}
clip_grad_norm: null
compile: False
device: cuda
dtype: bf16
enable_activation_checkpointing: {again}
enable_activation_offloading: False
metric_logger: {{_component_: torchtune.training.metric_logging.DiskLogger, log_dir: out/logs}}
log_every_n_steps: 1
log_peak_memory_stats: True
profiler: {{_component_: torchtune.training.setup_torch_profiler, enabled: False}}
"""
_LORA = """  lora_attn_modules: [q_proj, v_proj, output_proj]
  apply_lora_to_mlp: True
  lora_rank: 16
  lora_alpha: 32
"""


def masks(root: Path) -> None:
    """CamVid as SegNet's tutorial lays it: 480 x 360, twelve classes."""
    camvid = root / "examples" / "binary_segmentation_data" / "dataset" / "CamVid"
    for split, count in (("train", 24), ("val", 8), ("test", 8)):
        for n in range(count):
            image(camvid / split / f"{n}.png", 480, 360)
            image(camvid / f"{split}annot" / f"{n}.png", 480, 360, gray=True, values=12)


def graphs(root: Path) -> None:
    """Cora in the files of Planetoid (2,708 papers of 1,433 words), and MUTAG's 188 molecules in TU's."""
    from scipy.sparse import random as sparse

    draw = np.random.default_rng(4)
    cora = root / "Planetoid" / "Cora" / "raw"
    cora.mkdir(parents=True, exist_ok=True)
    nodes, tested, classes = 2708, 1000, 7
    known = nodes - tested
    labels = np.eye(classes, dtype=np.int32)[draw.integers(0, classes, nodes)]
    words = sparse(nodes, 1433, density=0.0127, format="csr", dtype=np.float32, random_state=4)
    files = {
        "x": words[:140], "tx": words[known:], "allx": words[:known],
        "y": labels[:140], "ty": labels[known:], "ally": labels[:known],
        "graph": {n: draw.integers(0, nodes, 4).tolist() for n in range(nodes)},
    }  # fmt: skip
    for name, value in files.items():
        (cora / f"ind.cora.{name}").write_bytes(pickle.dumps(value))
    (cora / "ind.cora.test.index").write_text("".join(f"{n}\n" for n in range(known, nodes)))
    mutag = root / "TU" / "MUTAG" / "raw"
    mutag.mkdir(parents=True, exist_ok=True)
    atoms = draw.integers(10, 29, 188)
    starts = np.concatenate([[1], 1 + np.cumsum(atoms)[:-1]])
    edges = [
        (start + n, start + (n + 1) % count)
        for start, count in zip(starts, atoms, strict=True)
        for n in range(count)
    ]
    both = [pair for a, b in edges for pair in ((a, b), (b, a))]
    rows = {
        "A": [f"{a}, {b}" for a, b in both],
        "edge_labels": [n % 4 for n in range(len(both))],
        "graph_indicator": np.repeat(np.arange(1, 189), atoms),
        "graph_labels": [1 - 2 * (n % 2) for n in range(188)],
        "node_labels": [n % 7 for n in range(atoms.sum())],
    }
    for name, values in rows.items():
        (mutag / f"MUTAG_{name}.txt").write_text("".join(f"{value}\n" for value in values))


def volumes(root: Path) -> None:
    """A task of nnU-Net's, planned and preprocessed by its own command: eight volumes of 64 x 96 x 96."""
    import nibabel

    task = root / NNUNET["nnUNet_raw"] / "Dataset001_Noise"
    draw = np.random.default_rng(5)
    for n in range(8):
        for kind, name in (("imagesTr", f"n_{n:03}_0000"), ("labelsTr", f"n_{n:03}")):
            (task / kind).mkdir(parents=True, exist_ok=True)
            values = draw.random((96, 96, 64), np.float32)
            values = values if kind == "imagesTr" else (values > 0.5).astype(np.uint8)
            nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), task / kind / f"{name}.nii.gz")
    about: dict[str, Any] = {"channel_names": {"0": "CT"}, "labels": {"background": 0, "noise": 1}}
    about |= {"numTraining": 8, "file_ending": ".nii.gz"}
    (task / "dataset.json").write_text(json.dumps(about), encoding="utf-8")
    program = Path(sys.executable).parent / "nnUNetv2_plan_and_preprocess"
    environment = os.environ | {name: str(root / folder) for name, folder in NNUNET.items()}
    subprocess.run(
        [sys.executable, str(program), "-d", "1", "-c", "2d", "3d_fullres", "-np", "1", "1", "-npfp", "1"],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def llama(root: Path) -> None:
    """A small Llama with drawn weights in Hugging Face's names, a tokenizer of bytes, and torchtune's settings."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    of = _LLAMA
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=of["embed"], num_hidden_layers=of["layers"], num_attention_heads=of["heads"],
        num_key_value_heads=of["groups"], intermediate_size=of["inner"], vocab_size=of["vocabulary"],
        tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(root / "llama")
    ranks = (f"{base64.b64encode(bytes([n])).decode()} {n}\n" for n in range(256))
    (root / "llama" / "tokenizer.model").write_text("".join(ranks), encoding="utf-8")
    recipes: dict[str, dict[str, Any]] = {
        "full": {"builder": "llama3_2", "lora": "", "within": False, "accumulated": 1, "again": True},
        "full_in_backward": {
            "builder": "llama3_2",
            "lora": "",
            "within": True,
            "accumulated": 1,
            "again": False,
        },
        "lora": {
            "builder": "lora_llama3_2",
            "lora": _LORA,
            "within": False,
            "accumulated": 2,
            "again": False,
        },
    }
    for name, values in recipes.items():
        (root / f"tune_{name}.yaml").write_text(RECIPE.format(**of, **values), encoding="utf-8")


def pythia(root: Path) -> None:
    """Pythia-14m with drawn weights, as LitGPT keeps a checkpoint; its tokenizer has one token for each byte."""
    import torch
    from litgpt import GPT, Config
    from litgpt.utils import save_config
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = root / "checkpoints" / "EleutherAI" / "pythia-14m"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    config = Config.from_name("pythia-14m")
    torch.save(GPT(config).state_dict(), folder / "lit_model.pth")
    save_config(config, folder)
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>"]
    made = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    made.save(str(folder / "tokenizer.json"))
    told = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "tokenizer_class": "GPTNeoXTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")


def captions(root: Path) -> None:
    """A table of images and captions, as OpenCLIP reads it."""
    said = list(sentences(64))
    rows = "".join(f"flat/{n % 4}_{n}.png\t{said[n]}\n" for n in range(64))
    (root / "captions.csv").write_text(f"filepath\ttitle\n{rows}", encoding="utf-8")


def make(root: Path) -> None:
    """Make all of it.

    Args:
        root: Folder.
    """
    masks(root)
    graphs(root)
    captions(root)
    below(root, "cifar10", "cifar-10-batches-py")
    volumes(root)
    llama(root)
    pythia(root)


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())

"""List the scripts of bench/scripts/samples/ that are traced and measured, and how each is started."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "samples"
SCRIPTS = (
    "torchvision_resnet.py resnet18",
    "torchvision_resnet.py mobilenet_v3_large --amp",
    "torchvision_resnet.py vgg16 --batch 8",
    "torchvision_resnet.py vit_b_16 --batch 8 --amp",
    "torchvision_detection.py",
    "timm_train.py vit_tiny_patch16_224",
    "timm_train.py resnet50 --opt lamb",
    "timm_train.py convnext_tiny",
    "timm_train.py efficientnet_b0 --opt rmsproptf",
    "hf_trainer.py bert",
    "hf_trainer.py gpt2 --checkpointing",
    "hf_trainer.py t5",
    "hf_trainer.py llama --accumulate 2",
    "hf_trainer.py vit",
    "accelerate_loop.py",
    "lightning_module.py",
    "lightning_module.py 16-mixed",
    "lightning_module.py bf16-true",
    "peft_lora.py",
    "peft_lora.py --checkpointing",
)
"""The twenty of the table in docs/measurements/2026-11-scripts.md."""
WAYS = (
    "ddp_loop.py",
    "ddp_loop.py --views",
    "fsdp_loop.py",
    "fsdp_loop.py --wrapped",
    "compiled_loop.py resnet",
    "compiled_loop.py gpt2",
    "hf_config.py gpt2_small",
    "peft_qlora.py",
)
"""Ways to train that need more: two GPUs, a C compiler, bitsandbytes."""
RANKS = {"ddp_loop.py": 2, "fsdp_loop.py": 2}
"""Those that torchrun starts, and with how many ranks."""


def ranks(line: str) -> int:
    """Return how many GPUs a script trains on."""
    return RANKS.get(line.split()[0], 1)


def command(line: str, python: Path) -> list[str]:
    """Return the words that start a script.

    Args:
        line: One of the lists above; a word that names a file next to the script stands for its path.
        python: Of the environment that has what the script imports.
    """
    words = [str(FOLDER / word) if (FOLDER / word).exists() else word for word in line.split()]
    if ranks(line) == 1:
        return [str(python), *words]
    alone = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks(line)))
    return [str(python), "-m", "torch.distributed.run", *alone, *words]

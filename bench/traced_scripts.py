"""How many training scripts are traced as they stand: python bench/traced_scripts.py --python ENVIRONMENT/bin/python.

Runs each script of bench/scripts/ on the pretended GPU as `rad-estimate -- python SCRIPT` does, and prints what it came
to, or why not; those in APART when they are named. The environment named by --python needs torch, torchvision, timm,
transformers, accelerate, lightning and peft; no GPU. Measuring the same scripts on a GPU beside it:
bench/gpu_campaign/scripts_measured.sh.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from gpumemnet.estimators.registry import estimate
from gpumemnet.script.start import Limits, Untraced, run
from gpumemnet.units import MIB

FOLDER = Path(__file__).resolve().parent / "scripts"
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
APART = ("peft_qlora.py", "peft_qlora.py --paged")
"""They need bitsandbytes as well."""


def main() -> None:
    """Print one line for each script, and how many were traced."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="of an environment with all packages")
    parser.add_argument("--seconds", type=float, default=300.0, help="a script may take")
    parser.add_argument("scripts", nargs="*", help="only those whose line holds one of these words")
    options = parser.parse_args()
    every = SCRIPTS if not options.scripts else (*SCRIPTS, *APART)
    chosen = [s for s in every if not options.scripts or any(word in s for word in options.scripts)]
    python = Path(options.python).absolute()
    traced = 0
    for script in chosen:
        name, *words = script.split()
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            found = run(
                [str(python), str(FOLDER / name), *words],
                environment=os.environ,
                limits=Limits(seconds=options.seconds),
            )
            os.chdir("/")
        took = f"{time.monotonic() - began:.0f} s"
        if isinstance(found, Untraced):
            print(f"{script:46} NOT TRACED after {took}: {found.why}", flush=True)
            continue
        traced += 1
        (profile,) = found.profiles
        told = estimate(profile)
        what = f"{found.model}, batch {profile.batch_size}, {profile.optimizer}, {profile.precision}"
        print(f"{script:46} {told.estimate_bytes / MIB:6.0f} MiB {took:>6}  {what}", flush=True)
    print(f"{traced} of {len(chosen)} traced")


if __name__ == "__main__":
    main()

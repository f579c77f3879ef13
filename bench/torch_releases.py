"""Which releases of PyTorch trace, and whether they come to the same: python bench/torch_releases.py PYTHON...

Each PYTHON is of an environment with PyTorch and nothing else (`pip install torch 'numpy<2'`), the first one the
reference. Every model below is traced in each, and a small script runs there as `rad-estimate -- python train.py` runs
it. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 10)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
weights = torch.tensor([1.0] * 10, device="cuda")
data = torch.utils.data.TensorDataset(torch.randn(512, 784), torch.randint(0, 10, (512,)))
for image, label in torch.utils.data.DataLoader(data, 64, num_workers=2):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(image.cuda()), label.to("cuda"), weights)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def traced() -> dict[str, int]:
    """Return what each training reserves, in bytes, by name; runs in the environment that is tried."""
    import torch
    from torch import nn

    from gpumemnet.tracing.saved.make import saved_profile

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layers = nn.Embedding(1000, 256), nn.LSTM(256, 512, 2, batch_first=True)
            self.head = nn.Linear(512, 1000)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.layers(self.words(tokens))[0])

    def encoder() -> nn.Module:
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        return nn.Sequential(nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 3), nn.Linear(256, 1000))

    convolutional = nn.Sequential(
        *(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 128, 3, 2, 1, groups=2), nn.GroupNorm(8, 128), nn.SiLU(), nn.Dropout(0.1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
    )
    tokens = torch.zeros(32, 128, dtype=torch.int64)
    models = {
        "convolutional": (convolutional, (64, 3, 96, 96)),
        "perceptron": (
            nn.Sequential(nn.Linear(784, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 10)),
            (64, 784),
        ),
        "encoder": (encoder(), tokens),
        "recurrent": (Recurrent(), tokens),
    }
    trainings = (("sgd-momentum", "fp32"), ("adamw", "amp"), ("adam", "bf16"), ("rmsprop", "fp32"))
    found = {}
    for name, (model, inputs) in models.items():
        for optimizer, precision in trainings:
            for checkpointing in (False, True) if name == "encoder" else (False,):
                label = f"{name} {optimizer} {precision}{' checkpointing' if checkpointing else ''}"
                try:
                    saved = saved_profile(
                        model,
                        inputs,
                        optimizer=optimizer,
                        precision=precision,
                        gradient_checkpointing=checkpointing,
                    )
                    found[label] = saved.profiles[1].reserved_bytes
                except Exception as exc:  # noqa: BLE001 - a release that cannot do it is what is looked for
                    print(f"{torch.__version__}: {label}: {exc}", file=sys.stderr)
                    found[label] = 0
    return found


def asked(python: str) -> tuple[str, dict[str, int]]:
    """Return the versions of an environment and what its traces come to."""
    code = (
        f"import json, platform, sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'bench')!r}]\n"
        "import torch, torch_releases\n"
        "print(json.dumps([f'{platform.python_version():8} {torch.__version__:14}', torch_releases.traced()]))"
    )
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    versions, found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else (python, {})
    return versions, found


def script_bytes(python: str) -> str:
    """Return what the script reserves, or why it was not traced."""
    from gpumemnet.tracing.script.start import Untraced, run

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(SCRIPT)
        found = run([python, str(path)], environment=os.environ)
    if isinstance(found, Untraced):
        return f"NOT TRACED: {found.why}"
    return f"{found.profiles[0].reserved_bytes:,}"


def main() -> None:
    """Print one line for each environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    reference: dict[str, int] = {}
    print("Python   PyTorch        traced  the same  largest difference  took  script reserves")
    for python in parser.parse_args().pythons:
        python = str(Path(python).absolute())
        began = time.monotonic()
        versions, found = asked(python)
        reference = reference or found
        ratios = [found[name] / reference[name] for name in found if found[name] and reference[name]]
        same = sum(ratio == 1 for ratio in ratios)
        worst = max((abs(ratio - 1) for ratio in ratios), default=0.0)
        took = time.monotonic() - began
        print(
            f"{versions} {len(ratios):3}/{len(reference)} {same:9} {worst:18.1%} {took:6.0f} s  {script_bytes(python)}",
            flush=True,
        )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()

"""`hf:PATH`: build a Hugging Face Transformers model from its config.json alone, with the user's transformers.

No weights are read, nothing is fetched, and no code next to the config is run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpumemnet.errors import TraceError

PREFIX = "hf:"
_LANGUAGE = (
    "CausalLM",
    "LMHeadModel",
    "MaskedLM",
    "ConditionalGeneration",
    "PreTraining",
    "TokenClassification",
)
"""Name endings of models whose labels have the shape of the tokens."""


def config_path(spec: str) -> Path:
    """Return the config.json that `hf:PATH` names: the file itself, or the one in the folder.

    Raises:
        TraceError: There is no such file.
    """
    path = Path(spec[len(PREFIX) :])
    found = path / "config.json" if path.is_dir() else path
    if not found.is_file():
        raise TraceError(
            f"no such config: {found}; name a folder with config.json, as save_pretrained() leaves it"
        )
    return found


def finder(spec: str) -> Callable[[], Any]:
    """Return a function that builds the model with random weights.

    Args:
        spec: "hf:" and a folder with config.json, or such a file.

    Raises:
        TraceError: There is no such file, no transformers, or no such model in this release of it.
    """
    path = config_path(spec)
    try:
        import transformers
    except ImportError as exc:
        raise TraceError(
            "hf: needs the transformers that trains the model; run it in that environment"
        ) from exc
    name = _class_name(path)
    kind = getattr(transformers, name, None)
    if kind is None:
        raise TraceError(
            f"{path}: transformers {transformers.__version__} has no {name}; use the release that made it"
        )
    config = kind.config_class.from_pretrained(str(path))
    config.use_cache = False  # as trainers set it: past keys are not used in training
    return lambda: kind(config)


def inputs(spec: str) -> tuple[str, ...]:
    """Return the training inputs of the model: tokens or images, and labels; B and S are placeholders.

    Args:
        spec: As for `finder`.

    Raises:
        TraceError: The config does not determine them.
    """
    path = config_path(spec)
    name, config = _class_name(path), _read(path)
    labels = "labels=BxS:int64" if name.endswith(_LANGUAGE) else "labels=B:int64"
    size, channels = config.get("image_size"), config.get("num_channels", 3)
    if isinstance(size, int) and name.endswith("ImageClassification"):
        return f"pixel_values=Bx{channels}x{size}x{size}", labels
    if "vocab_size" in config and name.endswith((*_LANGUAGE, "SequenceClassification")):
        return "input_ids=BxS:int64", labels
    raise TraceError(f"{path}: give what {name} is trained on, as in --input input_ids=BxS:int64")


def _class_name(path: Path) -> str:
    names = _read(path).get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise TraceError(f'{path} names no model; add "architectures": ["LlamaForCausalLM"] or the like')
    return names[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise TraceError(f"cannot read {path}: {' '.join(str(exc).split())[:200]}") from exc
    if not isinstance(tree, dict):
        raise TraceError(f"{path} is no config: it contains no object")
    return tree

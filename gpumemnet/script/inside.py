"""What the script's Python runs before the script: nothing, until torch has been imported.

Standard library alone, and no annotation that an older Python cannot read: whatever Python the user starts loads it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

from gpumemnet.script.files import FOLDER


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as ever, and begins to pretend once it is loaded."""

    def __init__(self) -> None:
        self._looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return torch's own spec with a loader that tells when it is done."""
        if name != "torch" or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            _tell(spec.loader)
        return spec


def _tell(loader: Any) -> None:
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        from gpumemnet.script import live  # needs torch

        live.begin(os.environ[FOLDER])

    loader.exec_module = exec_module


def install() -> None:
    """Wait for torch, after the environment's own `sitecustomize`, which ours stands in front of."""
    folder = os.path.realpath(os.environ[FOLDER])
    rest = [each for each in sys.path if os.path.realpath(each or ".") != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    sys.meta_path.insert(0, _AfterTorch())

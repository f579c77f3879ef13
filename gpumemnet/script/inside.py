"""What the script's Python runs before the script: nothing, until torch has been imported.

Standard library alone, and no annotation that an older Python cannot read: whatever Python the user starts loads it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from gpumemnet.script.files import FOLDER


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as ever, and calls once it is loaded."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin, self._looking = begin, False

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
            _tell(spec.loader, self._begin)
        return spec


def _tell(loader: Any, begin: Callable[[], None]) -> None:
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        begin()

    loader.exec_module = exec_module


def install() -> None:
    """Wait for torch, and pretend from then on."""
    folder = os.environ[FOLDER]

    def pretend() -> None:
        from gpumemnet.script import live  # needs torch

        live.begin(folder)

    after_torch(folder, pretend)


def after_torch(folder: str, begin: Callable[[], None]) -> None:
    """Call once torch is loaded, after the environment's own `sitecustomize`, which ours stands in front of.

    Args:
        folder: Holds ours.
        begin: Is called.
    """
    folder = os.path.realpath(folder)
    rest = [each for each in sys.path if os.path.realpath(each or ".") != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    sys.meta_path.insert(0, _AfterTorch(begin))

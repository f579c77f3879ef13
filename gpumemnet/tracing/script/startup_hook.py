"""Hook that the script's Python runs first: it does nothing until torch has been imported.

Standard library only, and no annotation that an older Python rejects: any Python the user starts loads this.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import mmap
import os
import sys
from collections.abc import Callable

from gpumemnet.tracing.script import frameworks
from gpumemnet.tracing.script.files import FOLDER, HOOKED
from gpumemnet.tracing.script.libraries.imported import After


def install() -> None:
    """Wait for torch, and pretend a GPU from then on."""
    folder = os.environ[FOLDER]
    with open(os.path.join(folder, HOOKED), "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)  # identifies this process
    # Keep the reference: else Python unmaps it at exit, while torch's libraries are still loaded.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapped))
    frameworks.watch(folder)

    def pretend() -> None:
        from gpumemnet.tracing.script import live  # needs torch

        live.begin(folder)

    after_torch(folder, pretend)


def after_torch(folder: str, begin: Callable[[], None]) -> None:
    """Call a function once torch is loaded, after running the environment's `sitecustomize`, which the hook hides.

    Args:
        folder: Folder of the hook.
        begin: The function.
    """
    folder = os.path.realpath(folder)
    rest = [each for each in sys.path if os.path.realpath(each or ".") != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    if "torch" in sys.modules:  # by that `sitecustomize`, or by a .pth file of the environment
        begin()
        return
    sys.meta_path.insert(0, After("torch", begin))

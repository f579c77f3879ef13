"""Call a function once a module has been imported, for libraries that a script may never load.

Standard library only, and no annotation that an older Python rejects: any Python the user starts loads this.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
from collections.abc import Callable
from typing import Any


class After(importlib.abc.MetaPathFinder):
    """Finder that finds a module as usual and calls a function after it is loaded.

    Args:
        module: Name of the module.
        begin: Called after loading.
    """

    def __init__(self, module: str, begin: Callable[[], None]) -> None:
        self._module, self._begin, self._looking = module, begin, False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's spec with a loader that reports when loading is done.

        Args:
            name: Name of the requested module.
            path: Where; not used here.
            target: Likewise.
        """
        if name != self._module or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            _after_load(spec.loader, self._begin)
        return spec


def _after_load(loader: Any, begin: Callable[[], None]) -> None:
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        begin()

    loader.exec_module = exec_module

"""What is done once a module has been imported: of libraries that a script may never load.

Standard library alone, and no annotation that an older Python cannot read: whatever Python the user starts loads it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
from collections.abc import Callable
from typing import Any


class After(importlib.abc.MetaPathFinder):
    """Finds a module as ever, and calls once it is loaded.

    Args:
        module: Its name.
        begin: Is called.
    """

    def __init__(self, module: str, begin: Callable[[], None]) -> None:
        self._module, self._begin, self._looking = module, begin, False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's own spec with a loader that tells when it is done.

        Args:
            name: Of the module that is looked for.
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
            _tell(spec.loader, self._begin)
        return spec


def _tell(loader: Any, begin: Callable[[], None]) -> None:
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        begin()

    loader.exec_module = exec_module

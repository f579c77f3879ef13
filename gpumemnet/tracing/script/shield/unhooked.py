"""Find programs that load a framework without the pretended GPU: they would really train, on the CPU.

The hook maps a file when its Python starts. Forked children keep the mapping; a program started by exec does not. So
the mappings of a process show both, however it was started.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gpumemnet.tracing.script.files import FOLDER

_LIBRARIES = (
    *(b"/libtorch_cpu.", b"/libtorch_python.", b"/libtorch.so", b"/xla_extension", b"/libjax_common."),
    *(b"/libtensorflow_framework.", b"/_pywrap_tensorflow"),
)
_FLAGS = "EIS"
_WHAT = (
    "a program that it started loaded PyTorch past the trace, and was ended before it could train on the CPU"
)


def first(processes: Iterable[int], hooked: str) -> int | None:
    """Return the first process that has a framework but not the hook.

    Args:
        processes: Their ids.
        hooked: End of the path of the file that the hook maps.
    """
    for pid in processes:
        try:
            mapped = Path(f"/proc/{pid}/maps").read_bytes()
        except OSError:
            continue
        if os.fsencode(hooked) not in mapped and any(name in mapped for name in _LIBRARIES):
            return pid
    return None


def why(pid: int, folder: str) -> str:
    """Explain in one line why a process has no hook, and what to do.

    Args:
        pid: Its id.
        folder: Folder of the hook, which must be in PYTHONPATH.
    """
    environment = dict(word.partition("=")[::2] for word in _words(pid, "environ"))
    words = _words(pid, "cmdline")
    return f"{_WHAT}: {_cause(words, environment, folder)}"


def _cause(words: list[str], environment: dict[str, str], folder: str) -> str:
    name = " ".join(words[:2])[:80]
    if FOLDER not in environment:
        return f"{name} has its own environment (env -i, sudo, a container); keep RAD_* and PYTHONPATH there"
    for word in words[1:]:
        if not word.startswith("-") or word.startswith("--"):
            break
        if any(flag in word for flag in _FLAGS):
            return f"python {word} reads no PYTHONPATH; leave {word} out for the trace"
        if word[1:2] in "cmWX":
            break
    if folder not in environment.get("PYTHONPATH", "").split(os.pathsep):
        return "its launcher replaces PYTHONPATH; write PYTHONPATH=...:$PYTHONPATH there, to keep its value"
    return f"{name} did not run sitecustomize from PYTHONPATH; start the training by its Python's own command"


def _words(pid: int, name: str) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in text.split(b"\0") if word]

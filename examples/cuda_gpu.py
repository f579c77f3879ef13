"""One real GPU as fake_train.py uses it, through the CUDA driver alone: no framework is needed, and none is loaded."""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libcuda.so.1"
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
BEAT_BYTES = 64 << 20


class CudaError(RuntimeError):
    """The driver refused something.

    Attributes:
        code: CUresult, as https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html lists them.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: CUDA error {code}")
        self.code = code


class CudaGpu:
    """A GPU by its number in CUDA_VISIBLE_DEVICES; the driver is met at the first call."""

    def __init__(self, ordinal: int, library: Any) -> None:
        """Prepare.

        Args:
            ordinal: The number.
            library: The driver, as ctypes loads it.
        """
        self._ordinal, self._library = ordinal, library
        self._open = False
        self._last = ctypes.c_uint64()
        self._last_bytes = 0

    def take(self, n_bytes: int) -> None:
        """Allocate so much more.

        Raises:
            CudaError: The driver refused; its code is OUT_OF_MEMORY where the GPU or this client's limit is full.
        """
        self._start()
        memory = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(n_bytes))
        self._last, self._last_bytes = memory, n_bytes

    def beat(self) -> None:
        """Keep the GPU busy for a moment."""
        if self._last_bytes:
            size = ctypes.c_size_t(min(self._last_bytes, BEAT_BYTES))
            self._call("cuMemsetD8_v2", self._last, ctypes.c_ubyte(0), size)
            self._call("cuCtxSynchronize")

    def memory(self) -> tuple[int, int]:
        """Return free bytes and all bytes, as this process is shown them."""
        self._start()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def _start(self) -> None:
        if self._open:
            return
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), self._ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._open = True

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(name, code)

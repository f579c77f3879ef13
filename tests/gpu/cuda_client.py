"""A small CUDA program through the driver alone, started in a fraction of a second: python cuda_client.py MIB MODE.

It holds MIB of memory and keeps the GPU a little busy. Prints "ready PID UUID..." once it runs, with the GPUs that CUDA
shows it, and "beat N" ten times a second; "error CODE" and status 1 at the first CUDA error. MODE is `hold`; `still`:
hold it on every GPU and do nothing more; or `fault`: write to an impossible address once a line comes in.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
import uuid

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry fault()
{
    .reg .b64 %p;
    .reg .b32 %v;
    mov.u64 %p, 0xdead0000;
    mov.u32 %v, 1;
    st.global.u32 [%p], %v;
    ret;
}
"""


class Cuda:
    """libcuda with every return code checked."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str):
        function = getattr(self._library, name)

        def checked(*arguments: object) -> None:
            code = function(*arguments)
            if code:
                print(f"error {code} in {name}", flush=True)
                os._exit(1)

        return checked


def name_of(cuda: Cuda, ordinal: int) -> str:
    """Return the UUID of a GPU that CUDA shows, as nvidia-smi writes it."""
    device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), device)
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def take(cuda: Cuda, ordinal: int, mib: int) -> ctypes.c_uint64:
    """Hold so much memory of a GPU, which becomes the current one, and return where it is."""
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(mib << 20))
    return memory


def main() -> None:
    mib, mode = int(sys.argv[1]), sys.argv[2]
    cuda = Cuda()
    count = ctypes.c_int()
    cuda.cuInit(0)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    names = [name_of(cuda, ordinal) for ordinal in range(count.value)]
    for ordinal in range(count.value if mode == "still" else 1):
        memory = take(cuda, ordinal, mib)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    if mode == "fault":
        cuda.cuModuleLoadData(ctypes.byref(module), PTX)
        cuda.cuModuleGetFunction(ctypes.byref(function), module, b"fault")
    print(f"ready {os.getpid()} {' '.join(names)}", flush=True)
    while mode == "still":
        time.sleep(1.0)
    beats = 0
    while True:
        cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(beats % 256), ctypes.c_size_t(mib << 20))
        cuda.cuCtxSynchronize()
        beats += 1
        print(f"beat {beats}", flush=True)
        if select.select([sys.stdin], [], [], 0)[0] and mode == "fault":
            cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
            cuda.cuCtxSynchronize()
        time.sleep(0.1)


if __name__ == "__main__":
    main()

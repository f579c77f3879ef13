"""A small CUDA program through the driver alone, started in a fraction of a second: python cuda_client.py MIB MODE.

It holds MIB of memory and keeps the GPU a little busy. Prints "ready PID" once it runs and "beat N" ten times a
second; "error CODE" and status 1 at the first CUDA error. MODE is `hold`, or `fault`: write to an impossible address
once a line comes in.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time

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


def main() -> None:
    mib, mode = int(sys.argv[1]), sys.argv[2]
    cuda = Cuda()
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(mib << 20))
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    if mode == "fault":
        cuda.cuModuleLoadData(ctypes.byref(module), PTX)
        cuda.cuModuleGetFunction(ctypes.byref(function), module, b"fault")
    print(f"ready {os.getpid()}", flush=True)
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

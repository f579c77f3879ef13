"""Hold memory on every visible GPU, through the driver alone: hold.py MIB [fault].

Says "ready COUNT", and "error CODE" at the first CUDA error. With `fault` it writes to an impossible address of the
first GPU once a line comes in.
"""

from __future__ import annotations

import ctypes
import select
import sys
import time

from gpu.cuda_client import PTX, Cuda, take


def main() -> None:
    """Hold memory, and touch it now and then."""
    cuda, mib, fault = Cuda(), int(sys.argv[1]), "fault" in sys.argv
    count = ctypes.c_int()
    cuda.cuInit(0)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    allocated = []
    for ordinal in range(count.value):
        memory, context = take(cuda, ordinal, mib), ctypes.c_void_p()
        cuda.cuCtxGetCurrent(ctypes.byref(context))
        allocated.append((context, memory))
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    if fault:
        cuda.cuModuleLoadData(ctypes.byref(module), PTX)
        cuda.cuModuleGetFunction(ctypes.byref(function), module, b"fault")
    print("ready", count.value, flush=True)
    while True:
        for context, memory in allocated:
            cuda.cuCtxSetCurrent(context)
            cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(1), ctypes.c_size_t(mib << 20))
            cuda.cuCtxSynchronize()
        if fault and select.select([sys.stdin], [], [], 0)[0]:
            cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
            cuda.cuCtxSynchronize()
        time.sleep(0.05)


if __name__ == "__main__":
    main()

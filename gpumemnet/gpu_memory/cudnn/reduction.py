"""Buffer of a reduction (sum, mean, norm) when several thread blocks share one output.

PyTorch's reduction kernel divides long sums among thread blocks, which pass on their parts through a buffer in global
memory. Its size follows from the launch configuration, as computed by setReduceConfig and
ReduceConfig::global_memory_size in aten/src/ATen/native/cuda/Reduce.cuh. For sums over the rows of a matrix, as for
the gradient of a bias, the buffer can be larger than the matrix.
"""

from __future__ import annotations

import math
from functools import lru_cache

from gpumemnet.gpu_memory.rules import numbers

MAX_THREADS = 512
WARP = 32
MIN_VALUES_PER_THREAD = 16
MAX_VALUES_PER_THREAD = 256
VECTOR = 4
"""Maximum number of outputs per thread."""
PARTIAL_BYTES = 4
"""Bytes of a partial sum in fp32."""


Dimensions = tuple[tuple[int, int, bool], ...]
"""Stride, size and whether it is reduced, for each dimension of more than one element."""


@lru_cache(maxsize=4096)
def row_sums_bytes(rows: int, columns: int) -> int:
    """Return the buffer for the sum over all rows of a matrix, such as the gradient of a linear layer's bias.

    Args:
        rows: Number of rows.
        columns: Number of columns.
    """
    return buffer_bytes(tuple(dim for dim in ((columns, rows, True), (1, columns, False)) if dim[1] > 1))


def buffer_bytes(dims: Dimensions) -> int:
    """Return the size of the buffer for a reduction.

    Args:
        dims: The dimensions, in any order.
    """
    sizes = sorted(dims)
    inputs = math.prod(size for _, size, is_reduced in sizes if is_reduced)
    outputs = math.prod(size for _, size, is_reduced in sizes if not is_reduced)
    if inputs <= 1 or not sizes:
        return 0
    fastest_is_reduced = sizes[0][2]
    vector = 1
    if fastest_is_reduced:
        width, height = _block(inputs, outputs, MAX_THREADS)
        step_input, step_output = width, 1
    else:
        if sizes[0][0] == 1:
            vector = _vector(sizes)
        width, height = _block(outputs // vector, inputs, MAX_THREADS // vector)
        step_input, step_output = 1, width
    values = -(-inputs // step_input)
    if values < height * MIN_VALUES_PER_THREAD and values < MAX_VALUES_PER_THREAD:
        return 0
    step_input *= height
    values = -(-inputs // step_input)
    device = numbers.of("device")
    target = device["multiprocessors"] * (device["threads"] // (width * height))
    grid = -(-(outputs // vector) // step_output)
    if values < MAX_VALUES_PER_THREAD or grid > target:
        return 0
    wanted = min(-(-target // grid), -(-values // MIN_VALUES_PER_THREAD))
    blocks = max(wanted, -(-values // MAX_VALUES_PER_THREAD))
    if blocks <= 1:
        return 0
    lanes = 1 if fastest_is_reduced else width * vector
    return PARTIAL_BYTES * outputs * blocks * lanes


def _block(dim0: int, dim1: int, max_threads: int) -> tuple[int, int]:
    """Return width and height of a thread block (ReduceConfig::set_block_dimension)."""
    wide, high = (min(max_threads, _last_power_of_two(dim)) for dim in (dim0, dim1))
    width = min(wide, WARP)
    height = min(high, max_threads // width)
    return min(wide, max_threads // height), height


def _last_power_of_two(n: int) -> int:
    return 1 << (max(1, n).bit_length() - 1)


def _vector(sizes: list[tuple[int, int, bool]]) -> int:
    """Return the number of neighbouring outputs per thread: 4, 2 or 1, as sizes and strides allow."""
    run = 1
    for stride, size, is_reduced in sizes:
        if is_reduced or stride != run:
            break
        run *= size
    vector = VECTOR
    while vector > 1 and (run % vector or any(stride % vector for stride, _, _ in sizes if stride >= run)):
        vector //= 2
    return vector

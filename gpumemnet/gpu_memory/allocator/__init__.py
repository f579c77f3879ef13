"""Simulation of PyTorch's caching allocator: the GPU memory that calls reserve."""

"""PyTorch's caching allocator, simulated: what calls reserve on the GPU."""

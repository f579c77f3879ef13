"""How PyTorch's allocator, cuDNN and their releases use GPU memory."""

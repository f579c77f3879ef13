"""GPU memory of PyTorch's allocator and cuDNN, by release."""

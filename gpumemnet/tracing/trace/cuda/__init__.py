"""A pretended CUDA device: fake tensors that report it, and the operators that behave differently on it."""

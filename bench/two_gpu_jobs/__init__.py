"""Compare jobs of two GPUs under one MPS daemon a GPU, under one for the node, and without."""

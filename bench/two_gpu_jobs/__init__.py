"""How jobs of two GPUs fare next to other jobs, with one MPS daemon a GPU, one for the node, and none."""

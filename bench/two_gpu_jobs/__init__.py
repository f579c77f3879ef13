"""How jobs of two GPUs fare beside others, with one MPS daemon a GPU, one for the node, and none."""

"""Record the memory of a step: allocations and frees, kernels' workspaces, and answers for unknown values."""

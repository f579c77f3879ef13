"""Programs on login nodes: the cli_filter's part, and srun and salloc."""

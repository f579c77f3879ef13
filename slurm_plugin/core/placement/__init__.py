"""Choice of a job's GPUs: candidates and placement policies."""

"""Model of slurmctld's counts and decisions: free GPUs and shards, the queue, backfill."""

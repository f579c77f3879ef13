"""What slurmctld counts and decides, modelled: free seats, the queue, backfill."""

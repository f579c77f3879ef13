"""`rad simulate`: a trace of jobs on a cluster that is not there, through the functions that decide on real ones.

Discrete events. Slurm's part (priority, backfill, shards, whole GPUs, requeues) is modelled here; what RAD decides
comes from the production `decide`, `choose_gpu`, `Ledger` and `next_attempt`; how jobs slow each other down is told
by `interference`. CPUs and host memory are taken to suffice.

    trace -> jobs -> engine (seats and waiting: what slurmctld counts; node: what is really on the GPUs) -> metrics
"""

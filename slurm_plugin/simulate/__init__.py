"""`rad simulate`: a trace of jobs on a cluster that is not there, through the functions that decide on real ones.

Discrete events. Slurm's part (priority, backfill, shards, whole GPUs, requeues) is modelled here; what RAD decides
comes from the production `decide`, `choose_gpu`, `Ledger` and `next_attempt`; how jobs slow each other down is told
by `interference`. CPUs and host memory are taken to suffice.

    question ─> scenario (trace, workloads ─> jobs) ─> engine ─> result ─> metrics
                                                       ├ slurm/     what slurmctld counts: queue, seats, backfill
                                                       ├ hardware   what is really on the GPUs: node (production
                                                       │            placement), gpu (interference)
                                                       └ aftermath  put-backs, slots, recovery (production)
"""

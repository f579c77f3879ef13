"""`rad simulate`: simulate a trace of jobs on a cluster with the production decision functions.

Discrete events. Slurm's part (priority, backfill, shards, whole GPUs, requeues) is modelled here; RAD's decisions come
from the production `decide`, `choose_gpu`, `Ledger` and `next_attempt`; the slowdown of jobs by each other comes from
`gpus/interference`. CPUs and host memory are assumed to suffice.

    question ─> scenario (traces/ ─> jobs) ─> engine ─> result ─> metrics
                                              ├ slurm/     slurmctld's counts: queue, GPU indices, backfill
                                              ├ gpus/      what is really on the GPUs: node (production placement),
                                              │            gpu (interference)
                                              └ aftermath  requeues, slots, recovery (production)
"""

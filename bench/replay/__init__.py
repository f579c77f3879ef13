"""A trace as ordinary Slurm jobs of real trainings: one call is one run of one trace under one policy.

    plan       the trace's jobs: when, how many steps, how fast the loader, which limit
    policies   how a policy asks Slurm, and what of ours runs
    server     a warmed-up process that forks trainings, so that imports do not count
    client     what a job's script starts: hands environment and output to the server, ends as the training did
    training   steps on GPUs, or (standin) on simulated cards; writes when each step ended
    watch      memory, SM activity and power of every card over time
    run        starts a private Slurm, submits, waits, collects
    figures    what a run is worth (thesis section 6.3.4)

`bench/replay/run.sh` is the command; docs/results.md tells how it was used.
"""

"""Replay a trace as ordinary Slurm jobs of real trainings: one call is one run of one trace under one policy.

    plan       the trace's jobs: when, how many steps, how fast the loader, which limit
    policies   how a policy submits to Slurm, and what of RAD runs
    job/       what runs inside a job:
      client     what its script starts: hands environment and output to the server, ends as the training did
      server     a warmed-up process that forks trainings, so that imports do not count
      training   steps on GPUs, or (standin) on simulated GPUs; writes when each step ended
    watch      memory, SM activity and power of every GPU over time
    stage      a private Slurm, MPS and the server of trainings: all that a run stands on
    run        submits, waits until all have ended or nothing happens any more (stuck), collects
    figures    what a run is worth (thesis section 6.3.4)
    campaign   several runs within a budget of GPU time: read and checked (wanted), predicted by simulation (predict),
               packed into calls (packing)
    report     recorded runs, compared on one page

`bench/replay/run.sh` is the command; docs/results.md says how it was used.
"""

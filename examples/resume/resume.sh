#!/bin/bash
#SBATCH --job-name=resume
#SBATCH --gpus=1
#SBATCH --time=1:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#RAD memory=2G
# One hour is a slot, not the whole training: 120 s before its end train.py saves and puts the job back into the queue.
# `exec` makes train.py the process that Slurm signals. A job keeps its id, so the folder is its own.
exec python3 train.py --checkpoints "checkpoints-$SLURM_JOB_ID"

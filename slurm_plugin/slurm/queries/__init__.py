"""Query squeue, sinfo, scontrol, sacct and sacctmgr; their output is read as bytes in columns of fixed width."""

"""What squeue, sinfo, scontrol, sacct and sacctmgr print, read as bytes in columns of fixed width."""

"""`rad why JOB`: why a job waits, or does not share. gather collects facts, answer decides, text formats."""

"""`rad report JOB`: one job from request to advice for next time. gather collects, story decides, text formats."""

"""`rad report JOB`: one job from what was asked to what to do next time; gather asks, story decides, text shows."""

"""What a user says about a job: `#RAD` lines and `rad:` comments."""

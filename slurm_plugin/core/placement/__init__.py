"""Which GPU a job runs on: candidates and placement policies."""

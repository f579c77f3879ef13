"""Events and their logs."""

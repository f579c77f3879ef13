"""From a profile to bytes: what answers, by name."""

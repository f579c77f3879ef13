"""Memory that earlier runs used, and what the next one books because of it."""

"""Memory that earlier runs used, and what it says of the next."""

"""Records and decisions; standard library only, no side effects at import."""

"""What libraries and drivers do on one GPU and release, as a table of numbers with the command that found each."""

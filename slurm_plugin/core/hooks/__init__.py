"""The frame in which Prolog and Epilog run: time limit, arguments, exit status."""

"""Common frame of Prolog and Epilog: time limit, arguments, exit status."""

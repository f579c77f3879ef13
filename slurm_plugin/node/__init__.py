"""A GPU node as hooks and rad-monitor share it: its state, what is known of it, and the sweep that keeps it true."""

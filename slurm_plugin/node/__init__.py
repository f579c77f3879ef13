"""A GPU node as shared by hooks and rad-monitor: its state, facts about it, and the reconciliation of its state."""

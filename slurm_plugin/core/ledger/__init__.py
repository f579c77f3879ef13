"""A node's ledger of GPU memory: allocations, files, locks and reconciliation."""

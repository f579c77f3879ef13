"""Attention in a text: where it is, what its rows show, and the tensors of its operations."""

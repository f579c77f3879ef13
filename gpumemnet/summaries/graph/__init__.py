"""From layers to a tape: the operations of a forward pass and what their backward needs."""

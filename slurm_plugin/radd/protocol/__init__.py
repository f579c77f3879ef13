"""radd's messages: the socket, their form, and what the shim does without radd."""

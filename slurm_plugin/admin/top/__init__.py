"""`rad top`: all nodes, live. What is asked (gather) becomes one record (fleet), then rows, then a frame of text."""

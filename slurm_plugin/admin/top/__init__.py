"""`rad top`: live view of all nodes. Answers (gather) become one record (fleet), then rows, then a frame of text."""

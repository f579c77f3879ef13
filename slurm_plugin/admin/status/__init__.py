"""`rad status`: what runs on each GPU, and what waits."""

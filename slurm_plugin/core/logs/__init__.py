"""Events and the logs that hold them."""

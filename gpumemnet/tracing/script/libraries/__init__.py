"""What libraries do in a training script, done without a GPU."""

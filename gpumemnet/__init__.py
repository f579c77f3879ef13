"""GPU memory of a training job, estimated before it runs."""

"""What cuDNN borrows and keeps, from the shapes of a layer."""

"""From the text of a model summary to the operations of a training step."""

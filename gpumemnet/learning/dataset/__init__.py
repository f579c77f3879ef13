"""Random models, trained on a GPU and measured."""

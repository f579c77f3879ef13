"""Random models, really trained on a GPU and measured."""

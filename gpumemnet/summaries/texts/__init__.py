"""From a text to layers: formats, kinds of layers, what rows mean."""

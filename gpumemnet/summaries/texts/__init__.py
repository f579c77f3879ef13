"""From a text to layers: formats, kinds of layers, meaning of rows."""

"""cuDNN's workspaces and reserves, from the shapes of a layer."""

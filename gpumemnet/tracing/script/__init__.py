"""`rad-estimate -- python train.py ...`: run an unmodified training script on a pretended GPU.

`start` runs in rad-estimate's process, without torch. It starts the user's command with a `sitecustomize` first in
PYTHONPATH, enforces limits and waits for the result. `startup_hook` is that `sitecustomize`: it waits until torch is
imported and calls `live`, which pretends the GPU, counts optimizer steps and writes a saved profile. Works with Python
3.9 and torch 2.1 or later of the user's environment.
"""

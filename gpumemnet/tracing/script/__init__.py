"""`rad-estimate -- python train.py ...`: an unmodified training script, run on a GPU that is not there.

`start` runs beside rad-estimate, without torch: it starts the user's command with a `sitecustomize` in front, bounds it
and waits for its result. `inside` is that `sitecustomize`: it waits for torch to be imported and hands over to `live`,
which pretends the GPU, counts optimizer steps and leaves a saved profile. Python 3.9 and torch 2.1 or
later, of the user's own environment.
"""

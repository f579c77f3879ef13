"""The names by which `start` and the script that it started find each other."""

FOLDER = "RAD_SCRIPT_FOLDER"
"""Variable of the environment: the folder with what starts first, and where results go."""
COMMAND = "RAD_SCRIPT_COMMAND"
"""Variable of the environment: the user's command, quoted as in a shell."""
RESULT, FAILED = "result.rad", "failed.txt"
"""A saved profile; or one line that says why there is none, and a text of the model below it."""
HOOKED = "in-front"
"""A file that each Python maps into its memory as it starts, if what stands in for the GPU was loaded there."""


"""Names and limits shared by `start` and the script that it started."""

from gpumemnet.units import MIB

FOLDER = "RAD_SCRIPT_FOLDER"
"""Environment variable: the folder with the start hook and the results."""
COMMAND = "RAD_SCRIPT_COMMAND"
"""Environment variable: the user's command, quoted as in a shell."""
STARTED_IN = "RAD_SCRIPT_STARTED_IN"
"""Environment variable: the folder in which the command was typed, without symbolic links."""
RESULT, FAILED, COURSE = "result.rad", "failed.txt", "course.json"
"""A saved profile; or one line with the reason for its absence, and a text of the model below it. Memory over the last
step."""
HOOKED = "in-front"
"""A file that each Python maps into memory when it starts, if the hook was loaded there."""
MAX_FILE_BYTES = 256 * MIB
"""Maximum size of a file; a script that writes more has run further than intended."""

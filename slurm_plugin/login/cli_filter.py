"""Read a submission's directives and model on the login node: cli_filter.lua starts this program as the user.

It reads the model summary that a job names and adds its profile to the job's comment. For srun and salloc it also
makes the decision that job_submit makes for batch jobs: Slurm 22.05 sets up their first step from the request as
typed. The decision is the same function; a user who leaves it out gains nothing, as job_submit decides again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpumemnet.records import frozen, replace
from slurm_plugin import directives as directive_lines
from slurm_plugin.core.booking.gres_text import MEMORY_BY_GPU
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.config.load import Config, load_config
from slurm_plugin.core.errors import EstimateError, RadError, SlurmError, WireError
from slurm_plugin.directives import SCRIPT_HEAD_BYTES, Directives, directives_of, profile_of
from slurm_plugin.slurm.files.conf_files import (
    chosen_after_lua,
    chosen_by_plugin,
    find_slurm_conf,
    gres_of_nodes,
    settings_of,
    why_no_shards,
)
from slurm_plugin.slurm.versions import OLDEST, Version, whole_as_gpu

MAX_WARNINGS = 2
"""Maximum number of warnings at each submission; more would not be read, and `rad-estimate` shows all."""


def main() -> None:
    """Print one line of JSON: the options to set and the messages to print.

    Arguments, both from cli_filter.lua: the path of rad.toml, and the options as JSON. There is no command line
    library, because it would cost 15 ms at each submission.
    """
    config_path, typed = sys.argv[1:]
    try:
        config = load_config(Path(config_path))
        slurm_conf = find_slurm_conf(config.paths.slurm_conf, os.environ)
        settings = {} if slurm_conf is None else settings_of(slurm_conf)
        if slurm_conf is not None and (reason := why_no_shards(settings, gres_of_nodes(slurm_conf))):
            raise SlurmError(f"{slurm_conf}: {reason}; every job is submitted unchanged")
        options = _options(os.fsencode(typed).decode(errors="surrogateescape"))
        is_batch = options.get("command") == "sbatch"
        if chosen_after_lua(settings) or (not is_batch and chosen_by_plugin(settings)):
            config = replace(config, default_partition="")
        version = OLDEST if is_batch else _version(slurm_conf)
        reply = answer(
            options,
            config,
            folder=Path.cwd(),
            user_id=os.getuid(),
            version=version,
            slurm_conf=None if is_batch else slurm_conf,
        )
    except (RadError, OSError, ValueError) as exc:
        print(f"rad: {exc}", file=sys.stderr)
        sys.exit(1)
    line = json.dumps(reply, ensure_ascii=False) + "\n"
    sys.stdout.buffer.write(line.encode(errors="surrogateescape"))


def _options(text: str) -> dict[str, str]:
    """Return the options that cli_filter.lua passes.

    Raises:
        WireError: They are not a JSON object of texts.
    """
    options = json.loads(text)
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise WireError("options that are no JSON object of texts")
    return options


def _version(slurm_conf: Path | None) -> Version:
    from slurm_plugin.slurm.files.installed import version_in_use  # not needed for batch jobs

    try:
        return version_in_use(slurm_conf)
    except SlurmError:
        return OLDEST


def answer(
    options: Mapping[str, str],
    config: Config,
    *,
    folder: Path,
    user_id: int,
    version: Version = OLDEST,
    slurm_conf: Path | None = None,
) -> dict[str, Any]:
    """Return the options to set and the messages to print.

    Args:
        options: Options of sbatch, srun or salloc by their long name, with "command" and "script".
        config: rad.toml as this node has it.
        folder: Folder in which the user ran the command.
        user_id: The user.
        version: Version of the installed Slurm.
        slurm_conf: The file with the defaults of its partitions; None for none.

    Raises:
        RadError: An option cannot be understood.
    """
    partition = config.partition(options.get("partition"))
    off = config.mode == "off" or not config.features.submit
    if off or partition is None or not partition.managed:
        return {}
    script_name = options.get("script")
    script = None if script_name is None else head_of(Path(script_name))
    seen = seen_on_login(script, script_name, comment=options.get("comment", ""), folder=folder)
    messages = () if config.mode == "observe" else seen.messages
    changes = {} if seen.comment is None else {"comment": seen.comment}
    if options.get("command") == "sbatch":
        return {"set": changes, "say": list(messages)}
    comment = options.get("comment", "") if seen.comment is None else seen.comment
    from slurm_plugin.login.interactive import decided  # a batch job's submission need not load the decision
    from slurm_plugin.slurm.files.gpu_defaults import gpu_defaults_of

    rewrite, options_now = decided(
        options,
        seen.directives,
        config,
        comment=comment,
        user_id=user_id,
        whole_as_gpu=whole_as_gpu(partition, version),
        gpu_defaults={} if slurm_conf is None else gpu_defaults_of(slurm_conf),
    )
    return {
        "set": changes | options_now,
        "say": [*messages, *rewrite.messages],
        "refuse": rewrite.refusal,
        "memory_by_gpu": MEMORY_BY_GPU in rewrite.environment,
    }


@frozen
class LoginResult:
    """What the login node finds in a submission.

    Attributes:
        directives: The user's directives; None if there are none, or if they are invalid.
        comment: The comment with the model's profile; None if no model was read.
        messages: Lines for the user.
        trouble: Whether the model could not be read.
    """

    directives: Directives | None = None
    comment: str | None = None
    messages: tuple[str, ...] = ()
    trouble: bool = False


def seen_on_login(script: str | None, script_name: str | None, *, comment: str, folder: Path) -> LoginResult:
    """Read the model that a submission names.

    Args:
        script: The start of the job script; None if there is none to read.
        script_name: Its path as typed; None if there is none.
        comment: The comment as typed.
        folder: Folder in which the user ran the command.
    """
    try:
        directives = directives_of(script, str(script_name), signed_comment.user_words(comment))
    except EstimateError:
        # job_submit reports it: it sees the same text, and its message reaches every user.
        return LoginResult()
    if directives is None or directives.model is None:
        return LoginResult(directives=directives)
    folders = (folder,) if script_name is None else (folder, Path(script_name).parent)
    try:
        profile, warnings = profile_of(directives, folders) or ("", ())
        messages = tuple(f"RAD: {text}" for text in warnings[:MAX_WARNINGS])
        return LoginResult(directives=directives, comment=_with_profile(comment, profile), messages=messages)
    except EstimateError as exc:
        return LoginResult(directives=directives, messages=(f"RAD: {exc}",), trouble=True)


def head_of(script: Path) -> str | None:
    """Return the start of a job script, or None if it is not an ordinary, readable file."""
    try:
        if not script.is_file():
            return None
        with script.open("rb") as file:
            return directive_lines.head_of(file.read(SCRIPT_HEAD_BYTES + 1))[0]
    except OSError:
        return None


def _with_profile(comment: str, profile: str) -> str:
    """Return the comment with the profile.

    Raises:
        EstimateError: They do not both fit.
    """
    changed = signed_comment.with_profile(comment, profile)
    if changed is None:
        raise EstimateError("the comment is too long to add the model's profile; use at most 400 characters")
    return changed


if __name__ == "__main__":
    main()

"""The program that cli_filter.lua starts on the login node, as the user.

It reads the model summary that a job names and puts its profile into the job's comment. For srun and salloc it also
makes the decision that job_submit makes for batch jobs: Slurm 22.05 sets up their first step from the request as it
was typed. The decision is the same function; a user who leaves it out gains nothing, as job_submit decides again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_plugin.core import wire
from slurm_plugin.core.config import Config, load_config
from slurm_plugin.core.errors import EstimateError, RadError, SlurmError, WireError
from slurm_plugin.core.policy import decide
from slurm_plugin.core.request import request_from
from slurm_plugin.estimate import SCRIPT_HEAD_BYTES, Estimator, claims_of, directives_of, profile_of
from slurm_plugin.slurm.conf_files import find_slurm_conf, gres_of_nodes, settings_of, why_no_shards

MAX_WARNINGS = 2
"""More lines at each submission would be read by nobody; `rad-estimate` shows all."""
_OPTIONS = {
    "gres": "gres",
    "tres_per_job": "gpus",
    "tres_per_task": "gpus-per-task",
    "max_nodes": "nodes",
}
"""job_desc fields that `decide` sets, as options of srun and salloc."""
_NOT_CLEARED = ("cpus-per-gpu", "mem-per-gpu", "gpu-bind", "gpu-freq", "ntasks-per-gpu")
"""Options that Slurm takes only with gres/gpu, and that a cli_filter cannot take back."""


def main() -> None:
    """Print one line of JSON: what to set and what to say.

    Arguments: rad.toml, and a file of two lines: the path of the job script, and the options as JSON. Both are
    cli_filter.lua's; no command line library is worth its 15 ms at each submission here.
    """
    config_path, request_path = sys.argv[1:]
    try:
        text = Path(request_path).read_text(encoding="utf-8", errors="surrogateescape").partition("\n")[2]
        config = load_config(Path(config_path))
        slurm_conf = find_slurm_conf(config.paths.slurm_conf, os.environ)
        if slurm_conf is not None and (
            reason := why_no_shards(settings_of(slurm_conf), gres_of_nodes(slurm_conf))
        ):
            raise SlurmError(f"{slurm_conf}: {reason}: every job is left as it is")
        reply = answer(_options(text), config, folder=Path.cwd(), user_id=os.getuid())
    except (RadError, OSError, ValueError) as exc:
        print(f"rad: {exc}", file=sys.stderr)
        sys.exit(1)
    line = json.dumps(reply, ensure_ascii=False) + "\n"
    sys.stdout.buffer.write(line.encode(errors="surrogateescape"))


def _options(text: str) -> dict[str, str]:
    """Return the options that cli_filter.lua wrote.

    Raises:
        WireError: They are no JSON object of texts.
    """
    options = json.loads(text)
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise WireError("options that are no JSON object of texts")
    return options


def answer(options: Mapping[str, str], config: Config, *, folder: Path, user_id: int) -> dict[str, Any]:
    """Return what to set and what to say.

    Args:
        options: Options of sbatch, srun or salloc by their long name, with "command" and "script".
        config: rad.toml as this node has it.
        folder: Where the user typed the command.
        user_id: The user.

    Raises:
        RadError: An option cannot be understood.
    """
    partition = config.partition(options.get("partition"))
    off = config.mode == "off" or not config.features.submit
    if off or partition is None or not partition.ours:
        return {}
    comment = options.get("comment", "")
    script_name = options.get("script")
    script = None if script_name is None else _head(Path(script_name))
    try:
        directives = directives_of(script, str(script_name), comment)
    except EstimateError:
        directives = None  # job_submit says so: it sees the same text, and its word reaches every user
    says: list[str] = []
    changes: dict[str, str] = {}
    if directives is not None and directives.model is not None:
        folders = (folder,) if script_name is None else (folder, Path(script_name).parent)
        try:
            profile, warnings = profile_of(directives, folders) or ("", ())
            says += [f"RAD: {text}" for text in warnings[:MAX_WARNINGS]]
            comment = _with_profile(comment, profile)
            changes["comment"] = comment
        except EstimateError as exc:
            says.append(f"RAD: {exc}")
    if config.mode == "observe":
        says.clear()
    if options.get("command") == "sbatch":
        return {"set": changes, "say": says}
    request = request_from(_job_desc(options, comment, user_id))
    claims = claims_of(directives, comment)
    estimate = Estimator.from_config(config).estimate(claims)
    rewrite = decide(request, claims, estimate, config=config)
    changes |= _as_options(rewrite.fields, options)
    return {"set": changes, "say": [*says, *rewrite.messages], "refuse": rewrite.refusal}


def _head(script: Path) -> str | None:
    """Return the start of a job script, or None if it is no ordinary file that can be read."""
    try:
        if not script.is_file():
            return None
        with script.open("rb") as file:
            return file.read(SCRIPT_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return None


def _with_profile(comment: str, profile: str) -> str:
    """Return the comment with the profile.

    Raises:
        EstimateError: Both do not fit.
    """
    changed = wire.with_profile(comment, profile)
    if changed is None:
        raise EstimateError("the comment leaves no room for the model's profile; use at most 400 characters")
    return changed


def _job_desc(options: Mapping[str, str], comment: str, user_id: int) -> dict[str, Any]:
    """Return the options as job_submit will see them."""
    per_node = [options.get("gres"), _gpus(options.get("gpus-per-node"))]
    return {
        "user_id": user_id,
        "partition": options.get("partition"),
        "gres": ",".join(part for part in per_node if part),
        "tres_per_job": _gpus(options.get("gpus")),
        "tres_per_task": _gpus(options.get("gpus-per-task")),
        "tres_per_socket": _gpus(options.get("gpus-per-socket")),
        "gpu_only_option": next((f"--{name}" for name in _NOT_CLEARED if options.get(name)), None),
        "min_nodes": _count(options.get("nodes")),
        "num_tasks": _count(options.get("ntasks")),
        "comment": comment,
    }


def _gpus(text: str | None) -> str | None:
    """Return the value of a --gpus option as GRES: "2" is gpu:2, "a100:2" is gpu:a100:2."""
    return ",".join(f"gpu:{part}" for part in text.split(",")) if text else None


def _count(text: str | None) -> int | None:
    """Return the least number of "4" or "2-4"; None for no number."""
    first = (text or "").partition("-")[0]
    return int(first) if first.isdigit() else None


def _as_options(fields: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    changes = {_OPTIONS[name]: value for name, value in fields.items() if name in _OPTIONS}
    if fields and options.get("gpus-per-node"):
        changes["gpus-per-node"] = ""
    return changes


if __name__ == "__main__":
    main()

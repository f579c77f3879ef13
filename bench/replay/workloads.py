"""Look up what the workloads of a trace train, in the plan of the measurements, and write their models' texts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

Record = dict[str, Any]

ALONE = Path(__file__).resolve().parents[2] / "gpumemnet/data/activity_h200.jsonl.xz"
_EPOCHS = re.compile(r"_\d+e_(\d)$")
_STAND_INS = {32: "mnist_512", 28: "mnist_512"}


@cache
def _named() -> dict[str, Record]:
    from gpu_campaign.plan import named

    return named()


def planned_name(workload: str) -> str:
    """Return a workload's name in the plan of the measurements, which knows no epochs."""
    return _EPOCHS.sub(r"_\1", workload)


@cache
def _measured() -> dict[str, int]:
    from gpumemnet.learning.dataset.store import read_records

    rows = [row for row in read_records(ALONE) if row["outcome"] == "ok" and row.get("process_bytes")]
    return {_what_trains(row["config"]): row["process_bytes"] for row in rows}


def _what_trains(config: Record) -> str:
    reported = {name: config.get(name) for name in ("arch", "batch_size", "precision", "seq_len")}
    return json.dumps(reported | {"precision": reported["precision"] or "fp32"}, sort_keys=True)


def measured_mib(workload: str) -> int | None:
    """Return what a workload's process was seen to take on an H200; None if it was never measured."""
    config = _named().get(planned_name(workload))
    found = None if config is None else _measured().get(_what_trains(config))
    return None if found is None else -(-found // (1 << 20))


def config_of(workload: str) -> tuple[Record, str]:
    """Return a workload's configuration, and the name of what it is: another one where libraries lack its model.

    Raises:
        KeyError: This workload is unknown.
    """
    name = planned_name(workload)
    config = _named()[name]
    source = config["arch"].get("source")
    library = {"detection": "torchvision", None: None}.get(source, source)
    if library is None or _works(library):
        return config, name
    # The project's own families need no library.
    stand_in = _STAND_INS.get(config["arch"].get("size", 0), "UNet_8")
    return _named()[stand_in] | {"batch_size": min(config["batch_size"], 64)}, stand_in


@cache
def _works(library: str) -> bool:
    if importlib.util.find_spec(library) is None:
        return False
    try:
        __import__(library)
    except Exception:  # noqa: BLE001 - a library that does not fit its torch fails in any way
        return False
    return True


def setup_of(config: Record) -> str:
    """Return the `#RAD` words next to `model=`."""
    words = [f"batch_size={config['batch_size']}", f"optimizer={config['optimizer']}"]
    precision = config.get("precision", "fp32")
    words += [f"precision={precision}"] if precision != "fp32" else []
    words += [f"seq_len={config['seq_len']}"] if config.get("seq_len") else []
    return " ".join(words)


def model_file(workload: str, folder: Path) -> Path | None:
    """Return what `#RAD model=` names: a model's text, or the trace of one that has none; None if there is neither.

    Args:
        workload: Its name.
        folder: Where `describe` wrote.
    """
    found = (folder / f"{workload}{ending}" for ending in (".txt", ".rad"))
    return next((file for file in found if file.exists()), None)


def describe(workload: str, folder: Path) -> Record:
    """Write a workload's model text, torchinfo's where there is torchinfo, and return what a job says of it.

    torchinfo cannot run torchvision's detectors, whose inputs are lists: their script is traced, as the manual advises.
    """
    from gpumemnet.learning.dataset.config import Configuration
    from gpumemnet.learning.dataset.summaries import texts

    config, trains = config_of(workload)
    found: Record = {"trains": trains, "config": config, "setup": setup_of(config), "text": None}
    if config["arch"].get("source") == "detection":
        return found | {"text": _traced(workload, folder / f"{workload}.rad")}
    made = texts(Configuration.from_json(config))
    found["faketensor_mib"] = _fake_tensor(config)
    kind = next((kind for kind in ("torchinfo", "module_repr") if kind in made), None)
    if kind is not None:
        (folder / f"{workload}.txt").write_text(made[kind])
        found["text"] = kind
    return found


def _traced(workload: str, file: Path) -> str | None:
    """Write what `rad-estimate -- python -m replay.script WORKLOAD` finds; return what it is, None without."""
    from gpumemnet.tracing.saved.record import SavedProfile, write
    from gpumemnet.tracing.script.start import run

    found = run([sys.executable, "-m", "replay.script", workload], environment=os.environ)
    if not isinstance(found, SavedProfile):
        print(f"{workload}: {found.why}")
        return None
    write(found, file)
    return "trace"


def _fake_tensor(config: Record) -> int | None:
    """Return what FakeTensor says of a workload; None if an operation of it has no fake implementation."""
    import torch

    from gpumemnet.estimators.faketensor import peak_bytes
    from gpumemnet.learning.dataset.catalogue import workload
    from gpumemnet.learning.dataset.config import Configuration
    from gpumemnet.learning.dataset.workload import loss_of, make_inputs, make_tensor
    from gpumemnet.units import MIB

    made = Configuration.from_json(config)
    dtype = torch.bfloat16 if made.precision == "bf16" else torch.float32
    work = workload(made)
    try:
        args, kwargs = make_inputs(work, made.batch_size, "meta", dtype)
        target = None if work.target is None else make_tensor(work.target, made.batch_size, "meta", dtype)
        found = peak_bytes(
            lambda: work.build().to(dtype), lambda model: loss_of(work, model(*args, **kwargs), target)
        )
    except (NotImplementedError, RuntimeError):
        return None
    return -(-found // MIB)


def main() -> None:
    """Write texts into a folder: python -m replay.workloads FOLDER WORKLOAD ... (needs torch)."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "workloads.json"
    known = json.loads(done.read_text()) if done.exists() else {}
    for name in sys.argv[2:]:
        if name in known:
            continue
        known[name] = describe(name, folder)
        draft = done.with_suffix(".new")
        draft.write_text(json.dumps(known))  # after each, so that a cut costs one
        draft.replace(done)


if __name__ == "__main__":
    main()

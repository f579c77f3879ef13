"""What the documents tell their readers to type, and how each command is tried.

Every line of every block that is typed into a shell has a row here: a command that is run as it is written
(tests/cluster/commands/test_documents.py), or where else it is run, or why it is not. The reports in
docs/measurements/ need no rows: the options of their programs are compared with --help.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from paths import CHECKOUT

from slurm_plugin.simulate.traces.sacct import SACCT_FIELDS

_BLOCK = re.compile(r"(?m)^(?P<in> *)```(?P<kind>\w*)\n(?P<text>(?s:.*?))^(?P=in)```$")
_INDENTED = re.compile(r"(?m)(?:^(?: {4,}\S.*)?\n)*^ {4,}\S.*$")
_PROGRAM = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:rad|rad-estimate|radd|make|python3?|apt|dnf|sbatch|sacct|sacctmgr|sreport|scontrol|srun"
    r"|systemctl|tail|bash|clush|rsync|rm|\.rad/venv/bin/python|bench/\S+|lab/\S+|docker/\S+|/opt/rad/\S+)(?: |$)"
)

_MEASUREMENT = re.compile(r"(?:[A-Z_]+=\S+ )*(?:\S+/)?python3? (?:bench/|-m (?:bench|gpumemnet|replay)\b)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command that a test runs.

    Attributes:
        says: A pattern that its output must match.
        status: Its exit status each time that the document has it; None for one that goes on until it is stopped.
        root: Whether an admin types it; else a user.
        instead: Words of the document that stand for the reader's own, and what they are in the test.
    """

    says: str = ""
    status: tuple[int | None, ...] = (0,)
    root: bool = False
    instead: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunBy:
    """A command that something else in the checkout runs.

    Attributes:
        file: What runs it.
        words: What stands there of it.
    """

    file: str
    words: str


@dataclass(frozen=True, slots=True)
class NotRun:
    """A command that no test here can run.

    Attributes:
        why: What it needs.
    """

    why: str


Trial = Run | RunBy | NotRun

GPU = NotRun("needs a GPU")
MEASURES = NotRun("measures for minutes to hours; its options are compared with its --help")
DATA = NotRun("needs data of others, which are not shipped; its options are compared with its --help")
RESTART = NotRun("needs systemd; tests/cluster/install/test_edit_slurm.py starts the same daemons again")
MACHINES = NotRun("needs other machines; test_documented_commands.py looks at what is copied")
COUNTED, WEEK = "-T gres/gpu,gres/shard,billing", "start=now-7days end=now"
OWN_SLURM = "--slurm /etc/slurm"  # of the test's own /etc, not of the private cluster that SLURM_CONF names
NO_DRIVER = f"--node n0 --gpus 4 --gpu-memory-mib 40330 {OWN_SLURM}"
BOOKS = (
    r"sbatch: RAD: estimated [\d.]+ GiB; booked [\d.]+ GiB \(95th percentile\)"
    r"(, limit [\d.]+ GiB)?\n"
)

TRIALS: dict[str, dict[str, Trial]] = {
    "README.md": {
        "make demo": RunBy(".ci/run", "make demo"),
        "make test": NotRun("runs a part of what CI runs with make test-all"),
        "rad-estimate --save m.rad -- python train.py": RunBy(
            "tests/unit/gpumemnet_trace/script/test_script.py", '"--save"'
        ),
        "sbatch job.sh": Run(),  # with what it shows
        "apt install ./rad-slurm_*_all.deb": RunBy(
            "tools/try_packages.sh", "apt install -y ./rad-slurm_*_all.deb"
        ),
        "rad install --edit-slurm --gpu-memory-mib 40330": RunBy(
            "tests/cluster/install/test_edit_slurm.py", '"--gpu-memory-mib", "40330"'
        ),
        "clush -w gpu[1-4] --copy /etc/rad /etc/slurm/{slurm.conf,gres.conf,*.lua,rad}": MACHINES,
        "rsync -aKR --exclude=/etc/rad/key /etc/rad /etc/slurm/{slurm.conf,gres.conf,*.lua,rad} login1:/": MACHINES,
        "systemctl enable --now radd && systemctl restart slurmctld": RESTART,
        "systemctl enable --now rad-monitor && systemctl restart slurmd": RESTART,
    },
    "docs/user.md": {
        "rad-estimate --save m.rad -- python train.py": RunBy(
            "tests/unit/gpumemnet_trace/script/test_script.py", '"--save"'
        ),
        "rad-estimate job.sh": Run(says=BOOKS + r"requests shard:\d+ in partition gpu\n"),
        "sbatch job.sh": Run(says=BOOKS),
    },
    "docs/troubleshooting.md": {},
    "docs/reference.md": {
        "rad-estimate job.sh": Run(says=BOOKS + r"requests shard:\d+ in partition gpu\n"),
        "rad-estimate job.sh --explain": Run(says=r"(?s)base +\d+ MiB.*optimizer +\d+ MiB"),
        "rad-estimate job.sh --options '-p big'": Run(
            says="in partition plain; unchanged by RAD", instead={"big": "plain"}
        ),
        "rad-estimate job.sh --batch-size 256": Run(says=BOOKS),
        "rad-estimate job.sh --ask": Run(says="(?s)" + BOOKS + ".*start"),
        "rad-estimate job.sh --json": Run(says=r'^{"version": 1, .*"shards": \d+'),
        "rad-estimate job.sh --largest": Run(says=r"whole GPU +\d+ +\d+"),
        "rad-estimate job.sh --sweep": Run(says=r"\n +64  amp +yes +\d+"),
        "rad-estimate job.sh --compare --ask": Run(says=r"\ngpu +h200 +\d+"),
        "rad-estimate model.txt --compare": Run(says=r"\ngpu +h200 +\d+"),
        "rad-estimate job.sh --plot -": Run(says="(?s)forward .*at the peak"),
    },
    "docs/admin/install.md": {
        "apt install ./rad-slurm_*_all.deb": RunBy(
            "tools/try_packages.sh", "apt install -y ./rad-slurm_*_all.deb"
        ),
        "rad install --edit-slurm --dry-run": Run(
            root=True,
            says="/etc/rad/rad.toml",
            instead={"--dry-run": "--dry-run " + NO_DRIVER},
        ),
        "rad install --edit-slurm": Run(
            root=True, says="/etc/rad/key", instead={"--edit-slurm": "--edit-slurm " + NO_DRIVER}
        ),
        "systemctl enable --now radd && systemctl restart slurmctld": RESTART,
        "systemctl enable --now rad-monitor && systemctl restart slurmd": RESTART,
        "rad doctor": Run(root=True, status=(1,), says=r"(?s)FAIL .*\n +fix: "),
        "dnf install ./rad-slurm-*.noarch.rpm": NotRun(
            "needs a system with dnf; tools/try_packages.sh installs it with rpm"
        ),
        "python3 -m venv /opt/rad/venv": RunBy("tools/try_packages.sh", "python3 -m venv /opt/rad/venv"),
        "/opt/rad/venv/bin/pip install --require-hashes -r requirements/node.txt": RunBy(
            "tools/try_packages.sh", "/opt/rad/venv/bin/pip install --require-hashes -r requirements/node.txt"
        ),
        "/opt/rad/venv/bin/pip install --no-deps dist/rad_slurm-*.whl": RunBy(
            "tools/try_packages.sh", "/opt/rad/venv/bin/pip install --no-deps dist/rad_slurm-*.whl"
        ),
    },
    "docs/admin/upgrade-uninstall.md": {
        "rad uninstall": Run(  # this slurmctld goes on with what it has
            root=True, status=(1, 1), instead={"uninstall": f"uninstall {OWN_SLURM}"}
        ),
        "rad uninstall --edit-slurm": Run(
            root=True,
            status=(1,),
            says=r"as it was in slurm\.conf|PrologFlags stay",
            instead={"uninstall": f"uninstall {OWN_SLURM}"},
        ),
        "rm /etc/rad/*.sh /etc/slurm/rad/*.sh": NotRun(
            "needs slurmds without hooks; rad uninstall prints it"
        ),
        "apt purge rad-slurm": RunBy("tools/try_packages.sh", "apt-get purge -y -q rad-slurm"),
    },
    "docs/admin/limits-billing.md": {
        "sacctmgr modify qos normal set MaxTRESPerUser=billing=39": Run(root=True, says="normal"),
        "sacctmgr modify user bob set GrpTRES=billing=78 GrpTRESMins=billing=4680": Run(
            root=True, says="games", instead={"bob": "games"}
        ),
        f"sreport -t hours {COUNTED} cluster UserUtilizationByAccount {WEEK}": Run(root=True, says="Used"),
        f"sreport -t hourper {COUNTED} cluster utilization {WEEK}": Run(root=True, says="Allocated|Usage"),
        f"sreport -t hours -T billing user top {WEEK}": Run(root=True, says="Top 10 Users"),
    },
    "docs/admin/estimates.md": {
        "rad calibrate --python /path/to/python-with-torch": GPU,
        "rad calibrate --deep --dry-run": Run(root=True, says=r"together +\d+ s"),
        "rad calibrate --deep --python /path/to/python-with-torch": GPU,
        "rad learn": Run(root=True),
    },
    "docs/admin/operation.md": {
        "rad top": Run(root=True, says="GPU MEMORY used/booked/usable"),
        "rad status": Run(root=True, says="GPU  SMACT"),
        "rad status --watch": Run(root=True, status=(None,), says="GPU  SMACT"),
        "rad status --json": Run(root=True, says='"gpus"'),
        "rad history": Run(root=True, says="resnet50 +128"),
        "rad report 1234": Run(root=True, says=r"nobody, partition gpu: COMPLETED", instead={"1234": "JOB"}),
        "rad report --user alice --days 30": Run(
            root=True, says=r"nobody: \d+ jobs ended", instead={"alice": "nobody"}
        ),
        "rad digest": Run(root=True, says=r"Shared GPUs, .* jobs of"),
        "tail -F /var/log/rad/{prolog,epilog}.log": NotRun("shows what hooks of an installed site write"),
        "rad reload": Run(root=True, status=(1,), says="nothing was reloaded"),  # no systemd here
    },
    "docs/admin/first-node.md": {
        'sacct -a --parsable --delimiter="$(cat /proc/sys/kernel/random/uuid)" -S 2026-10-01 -E 2026-11-01'
        f" -o {SACCT_FIELDS} > jobs.txt": Run(
            root=True, instead={"2026-10-01": "now-1hour", "2026-11-01": "now"}
        ),
        "rad advise jobs.txt --nodes 10 --gpus-per-node 8 --gpu-memory-mib 81000 --config /etc/rad/rad.toml": Run(
            root=True, says="(?i)jobs"
        ),
        'sbatch -p shared --gpus=1 --comment="rad:memory=6G" --wrap="sleep 60"': Run(
            says=r"Submitted batch job \d+", instead={"-p shared": "-p gpu", "sleep 60": "sleep 1"}
        ),
    },
    "docs/admin/policy.md": {},
    "docs/admin/several-gpus.md": {},
    "docs/admin/gpu-types.md": {},
    "docs/admin/isolation.md": {},
    "docs/admin/files.md": {},
    "docs/monitoring.md": {
        "rad metrics": Run(root=True, says="rad_radd_up"),
        "rad metrics --serve 0.0.0.0:9836": Run(root=True, status=(None,)),
        "rad top": Run(root=True, says="GPU MEMORY used/booked/usable"),
        "rad top --node gpu1 --node gpu2=10.0.0.5:9835": NotRun("needs nodes of these names"),
        "rad top --once; rad top --json": Run(root=True, says='"nodes"'),
        "rad top --html > gpus.html": Run(root=True),
    },
    "docs/results.md": {
        "PYTHONPATH=bench:. .rad/venv/bin/python -m replay.report docs/results/replay/*.json.xz"
        " --out .rad/runs.html": RunBy("tests/unit/bench/test_bench_replay_report.py", "docs/results/replay"),
    },
    "docs/estimator.md": {
        "python bench/cost/estimate_cost.py": MEASURES,
    },
    "docs/estimator/scripts.md": {
        "python bench/scripts/traced_scripts.py --python ENVIRONMENT/bin/python": MEASURES,
    },
    "docs/estimator/traces.md": {
        "python bench/estimator/trace_accuracy.py --rows heldout": MEASURES,
    },
}
"""Document -> command -> how it is tried."""


SHOWN: dict[str, tuple[str, ...]] = {
    "README.md": ("#!/bin/bash",),
    "docs/user.md": (
        "#SBATCH --gpus=1",
        "#SBATCH --gpus=2",
        "#SBATCH --time=1:00:00",
    ),
    "docs/troubleshooting.md": ("job.sh:4: unknown optimizer", "Job 7      PENDING"),
    "docs/reference.md": (),
    "docs/admin/first-node.md": ("PartitionName=shared",),
    "docs/admin/gpu-types.md": ("# slurm.conf, where each shard",),
    "docs/admin/install.md": ("FAIL  slurm.conf",),
    "docs/admin/limits-billing.md": ("# slurm.conf; slurmctld",),
    "docs/admin/operation.md": ("2026-03-01T12:00:00.000 job=12", "0 7 * * 1 root"),
    "docs/admin/policy.md": ("SchedulerParameters=bf_min",),
    "docs/admin/several-gpus.md": ("SelectTypeParameters=CR_Core",),
    "docs/monitoring.md": ("# shared GPUs that run hot", '{"v":1,'),
    "docs/results.md": (),
    "docs/estimator.md": ("estimate = base", "quantile(p) = base"),
    "docs/estimator/scripts.md": (),
    "docs/estimator/traces.md": (),
}
"""Document -> how blocks begin that no job types: what programs print, and parts of files."""


def blocks_of(text: str) -> list[list[str]]:
    """Return the lines of each block that may be typed into a shell, without empty ones."""
    fenced = [
        match["text"] for match in _BLOCK.finditer(text) if match["kind"] in ("", "bash", "sh", "console")
    ]
    indented = [match[0] for match in _INDENTED.finditer(_BLOCK.sub("", text))]
    return [[line.strip() for line in block.splitlines() if line.strip()] for block in (*fenced, *indented)]


def commands_of(text: str) -> list[str]:
    """Return what a document shows its reader to type, in its order and without remarks behind it."""
    lines = [
        line.removeprefix("$ ")
        for block in blocks_of(text)
        if not block[0].startswith("#!")
        for line in block
    ]
    return [re.split(r"\s+#\s", line)[0] for line in lines if _PROGRAM.match(line)]


def unknown_lines(text: str) -> list[str]:
    """Return the lines between a document's commands that are neither a known program nor a remark.

    Where lines begin with `$`, the others are output.
    """
    typed = [
        block
        for block in blocks_of(text)
        if is_typed(block) and not any(line.startswith("$ ") for line in block)
    ]
    return [
        line for block in typed for line in block if not line.startswith("#") and not _PROGRAM.match(line)
    ]


def is_typed(block: list[str]) -> bool:
    """Return whether a block begins with a command."""
    return _PROGRAM.match(block[0].removeprefix("$ ")) is not None


def reported() -> list[str]:
    """Return the commands with options by which the reports in docs/measurements/ start a program of this project."""
    reports = sorted((CHECKOUT / "docs" / "measurements").glob("*.md"))
    found = [command for path in reports for command in commands_of(path.read_text(encoding="utf-8"))]
    kept = [command for command in dict.fromkeys(found) if _MEASUREMENT.match(command) and " --" in command]
    return [command for command in kept if not any(name in command for name in archived())]


def archived() -> set[str]:
    """Return the programs of finished measurements, which git has and the tree has no longer."""
    index = (CHECKOUT / "docs" / "measurements" / "README.md").read_text(encoding="utf-8")
    return set(re.findall(r"`(bench/\w+\.py)`", index.partition("## Programs")[2]))


def block_of(text: str, holds: str) -> str:
    """Return the block of a document that holds some words, without its indentation.

    Raises:
        LookupError: There is none.
    """
    for match in _BLOCK.finditer(text):
        if holds in match["text"]:
            return "\n".join(line.removeprefix(match["in"]) for line in match["text"].splitlines()) + "\n"
    raise LookupError(f"no block with {holds!r}")


def document(name: str) -> str:
    """Return a document's text."""
    return (CHECKOUT / name).read_text(encoding="utf-8")

"""The documents' commands as they are written, and what the documents show of their output."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from documents import TRIALS, Run, block_of, commands_of, document
from paths import CHECKOUT

from lab.cluster import Cluster
from lab.jobs import Jobs
from lab.place import ClusterSpec, Place
from tests.cluster.conftest import jobs_on, started
from tests.timing import within

pytestmark = pytest.mark.cluster

GOES_ON_S = within(3)
"""How long a command is watched that goes on until it is stopped."""

STOPPED = 124
"""Status of timeout(1) for it."""

OWN = ("etc", "opt", "var/lib", "var/log")
"""Folders of the machine that an admin's commands find empty, or as a site has them; dpkg takes an empty /opt away."""

RADS = re.compile(r"(?m)^(JobSubmitPlugins|CliFilterPlugins|PrologFlags|Prolog|TaskProlog|Epilog)=.*\n")
"""Lines of slurm.conf that a site has of us."""

TRAIN = """
import runpy, sys
sys.argv[1:] = ["--memory", "2G", "--seconds", "1"]
runpy.run_path("fake_train.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def own(place: Place) -> Iterator[Cluster]:
    spec = ClusterSpec(accounts=True, slurm_conf=("AccountingStorageTRES=gres/gpu,gres/shard",))
    yield from started(place, spec, name="documents")


@pytest.fixture
def jobs(own: Cluster, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    for jobs in jobs_on(own, request):
        (jobs.folder / "train.py").write_text(TRAIN)
        for name in ("resnet50.txt", "model.txt"):
            shutil.copy(CHECKOUT / "examples" / "models" / "resnet50_torchinfo.txt", jobs.folder / name)
        yield jobs


def typed(cluster: Cluster, command: str, folder: Path, *, root: bool, goes_on: bool) -> tuple[int, str]:
    """Type a command into a shell and return its status and all that it printed.

    Args:
        cluster: Where.
        command: As the document has it.
        folder: Where the reader stands.
        root: Whether root types it, on a machine whose /etc, /opt and /var are its own; else a user.
        goes_on: Whether it is stopped after a while.
    """
    limit = f"timeout {GOES_ON_S} " if goes_on else ""
    shell = ("bash", "-c", f"cd '{folder}' && ({limit}{command}) 2>&1; echo status $?")
    env = {"RAD_CONFIG": str(cluster.place.etc / "rad.n0.toml")}
    if root:
        own = own_folders(cluster)
        binds = "".join(f'mkdir -p /{name} && mount --bind "{own}/{name}" /{name} && ' for name in OWN)
        env = {"SLURM_CONF": str(cluster.place.slurm_conf)}
        argv = ("unshare", *mounts_apart(), "bash", "-c", f'{binds}exec "$@"', "_", *shell)
        said = cluster.slurm(*argv, env=env, stdin="y\n")
    else:
        said = cluster.slurm("runuser", "-u", "nobody", "--", *shell, env=env)
    text, _, status = said.rstrip().rpartition("status ")
    return int(status), text


def own_folders(cluster: Cluster) -> Path:
    """Return where folders lie that stand for the machine's own: Slurm's files in etc, the package in opt."""
    own = cluster.place.root / "own"
    if not own.exists():
        for name in OWN[1:]:
            (own / name).mkdir(parents=True)
        shutil.copytree("/etc", own / "etc", symlinks=True)
        (own / "etc" / "slurm").mkdir(exist_ok=True)
        for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
            shutil.copy(cluster.place.etc / name, own / "etc" / "slurm")
        without_rad(own / "etc" / "slurm")
        (own / "opt" / "rad").mkdir()
        (own / "opt" / "rad" / "venv").symlink_to(cluster.place.venv)
    return own


def without_rad(slurm: Path) -> None:
    """Make files of Slurm's, those of a private cluster, such as a site has before `rad install`."""
    conf, gres = slurm / "slurm.conf", slurm / "gres.conf"
    text = RADS.sub("", conf.read_text()).replace("GresTypes=gpu,shard", "GresTypes=gpu")
    conf.write_text(re.sub(r",LL_SHARED_GRES|,shard:\d+", "", text))
    gres.write_text(re.sub(r"(?m)^.*Name=shard.*\n", "", gres.read_text()))


@cache
def mounts_apart() -> tuple[str, ...]:
    """Return options of unshare(1) for mounts that no other job sees; the root of a chroot is no mount of its own."""
    apart = ("--mount",)
    found = subprocess.run(["unshare", *apart, "true"], capture_output=True, check=False)
    return apart if found.returncode == 0 else (*apart, "--propagation", "unchanged")


def follow(
    name: str, jobs: Jobs, *, instead: dict[str, str], before: dict[str, object] | None = None
) -> list[str]:
    """Type all commands of a document in their order and return what differs from what must come."""
    wrong, seen = [], Counter[str]()
    for command in commands_of(document(name)):
        trial = TRIALS[name][command]
        if not isinstance(trial, Run):
            continue
        status = trial.status[min(seen[command], len(trial.status) - 1)]
        seen[command] += 1
        line = command
        for foreign, rads in {**trial.instead, **instead}.items():
            line = line.replace(foreign, rads)
        if command == "rad learn":  # what follows looks at a node that is set up
            rad_toml = own_folders(jobs.cluster) / "etc" / "rad" / "rad.toml"
            rad_toml.parent.mkdir(exist_ok=True)
            shutil.copy(jobs.cluster.place.etc / "rad.n0.toml", rad_toml)
        found, text = typed(jobs.cluster, line, jobs.folder, root=trial.root, goes_on=status is None)
        if found != (STOPPED if status is None else status) or not re.search(trial.says, text):
            wrong.append(f"$ {line}\n{text}status {found}, not {status}; or it lacks {trial.says!r}")
    return wrong


def test_the_first_job_of_the_readme_is_informed_what_the_readme_shows(jobs: Jobs) -> None:
    readme = document("README.md")
    (jobs.folder / "job.sh").write_text(block_of(readme, "#RAD model=resnet50.txt"))
    command, *shown = block_of(readme, "$ sbatch").splitlines()
    status, text = typed(jobs.cluster, command.removeprefix("$ "), jobs.folder, root=False, goes_on=False)
    said = re.sub(r"batch job \d+", "batch job 71", text).splitlines()
    assert (status, said) == (0, shown)
    job = text.split()[-1]
    assert jobs.wait(job)["JobState"] == "COMPLETED", jobs.output(job)


@pytest.mark.parametrize("page", ["docs/user.md", "docs/reference.md"])
def test_a_users_commands_do_what_the_manual_says(jobs: Jobs, page: str) -> None:
    script = block_of(document("docs/user.md"), "#RAD model=model.txt")
    (jobs.folder / "job.sh").write_text("#!/bin/bash\n" + script + "python train.py\n")
    wrong = follow(page, jobs, instead={})
    assert not wrong, "\n".join(wrong)


def test_mistakes_are_reported_in_the_manuals_words(jobs: Jobs) -> None:
    wrong = [
        "#!/bin/bash",
        "#SBATCH --gpus=1",
        "",
        "#RAD optimizer=adamm",
        "",
        "",
        "python train.py",
        "",
        "#RAD memory=4G",
    ]
    head = ["#!/bin/bash", "#SBATCH --gpus=1"]
    comment, little = [*head, "", "", "# RAD model=resnet50.txt"], [*head, "", "#RAD memory=12"]
    missing, broken = [*head, "#RAD model=resnet51.txt"], [*head, "#RAD model=models/broken.txt"]
    spaced = [*head, "", "#RAD model=my models/resnet 50.txt batch_size=64"]
    options = [*head, "", "#RAD --model resnet50.txt --batch-size 64"]
    text = ""
    for lines in (wrong, comment, spaced, options, little, missing, broken):
        (jobs.folder / "job.sh").write_text("\n".join([*lines, ""]))
        text += typed(jobs.cluster, "rad-estimate job.sh", jobs.folder, root=False, goes_on=False)[1]
    shown = block_of(document("docs/troubleshooting.md"), "unknown optimizer 'adamm'").splitlines()
    text = text.replace(str(jobs.folder), "/home/you/runs")
    assert [line for line in shown if line.removesuffix("...") not in text] == [], text


def test_an_admins_commands_do_what_the_manual_says(jobs: Jobs) -> None:
    (jobs.folder / "job.sh").write_text(block_of(document("README.md"), "#RAD model=resnet50.txt"))
    answer = jobs.submit("job.sh")
    known = ("sacct", "-a", "-n", "-X", "-j", str(answer.job_id), "-o", "State,AllocTRES%99")
    jobs.cluster.wait("slurmdbd knows its end", lambda: "COMPLETED" in jobs.cluster.slurm(*known), 40)
    assert "gres/shard" in jobs.cluster.slurm(*known)
    pages = [name for name in TRIALS if name.startswith(("docs/admin/", "docs/monitoring"))]
    wrong = [line for name in pages for line in follow(name, jobs, instead={"JOB": str(answer.job_id)})]
    assert not wrong, "\n".join(wrong)

"""`rad install` writes what is not there and leaves everything else alone."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from small_disks import small_disk

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.doctor.checks.lua import check_lua
from slurm_plugin.admin.doctor.collect import gather
from slurm_plugin.admin.doctor.finding import Finding
from slurm_plugin.admin.install import plan as installing
from slurm_plugin.admin.install import transaction
from slurm_plugin.admin.install.defaults import found
from slurm_plugin.admin.install.plan import plan
from slurm_plugin.admin.install.transaction import change_together
from slurm_plugin.admin.own_files import values as values_module
from slurm_plugin.admin.own_files.manifest import digest, list_of, read_installed
from slurm_plugin.admin.own_files.steps import Step, as_text
from slurm_plugin.admin.own_files.templates import lua_folder, lua_modules
from slurm_plugin.admin.own_files.values import install_values
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.comments.signed_comment import read_key
from slurm_plugin.core.config import toml
from slurm_plugin.core.config.load import load_config, parse_config
from slurm_plugin.core.errors import ConfigError
from slurm_plugin.simulate.command import settings_of
from slurm_plugin.slurm.versions import max_shard_gpus_of


def install(root: Path, *options: str) -> str:
    result = CliRunner().invoke(
        main, ["install", "--root", str(root), "--gpu-memory-mib", "143156", *options]
    )
    assert result.exit_code == 0, result.output
    return result.output


def files(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): oct(path.stat().st_mode & 0o777)
        for path in root.rglob("*")
        if path.is_file()
    }


def test_everything_is_put_below_the_root(tmp_path: Path):
    output = install(tmp_path, "--key")
    assert files(tmp_path) == {
        "etc/rad/rad.toml": "0o644",
        "etc/rad/key": "0o600",
        "etc/rad/installed.sha256": "0o644",
        "etc/rad/prolog.sh": "0o755",
        "etc/rad/task_prolog.sh": "0o755",
        "etc/rad/epilog.sh": "0o755",
        "etc/slurm/job_submit.lua": "0o644",
        "etc/slurm/cli_filter.lua": "0o644",
        "etc/slurm/rad/prolog.sh": "0o755",
        "etc/slurm/rad/task_prolog.sh": "0o755",
        "etc/slurm/rad/epilog.sh": "0o755",
        "etc/slurm/rad/rad.lua": "0o644",
        "etc/slurm/rad/rad_cli.lua": "0o644",
        "etc/slurm/rad/rad_fallback.lua": "0o644",
        "etc/slurm/rad/rad_job.lua": "0o644",
        "etc/slurm/rad/rad_json.lua": "0o644",
        "etc/slurm/rad/rad_link.lua": "0o644",
        "etc/slurm/rad/rad_request.lua": "0o644",
        "etc/slurm/rad/rad_settings.lua": "0o644",
        "etc/slurm/rad/rad_signed_booking.lua": "0o644",
        "etc/slurm/rad/rad_step.lua": "0o644",
        "etc/systemd/system/radd.service": "0o644",
        "etc/systemd/system/radd.socket": "0o644",
        "etc/systemd/system/rad-monitor.service": "0o644",
        "etc/logrotate.d/rad": "0o644",
    }
    assert load_config(tmp_path / "etc/rad/rad.toml").partitions["gpu"].shards == 138
    assert len(read_key(tmp_path / "etc/rad/key")) == 32
    assert f"add to {tmp_path}/etc/slurm/slurm.conf" in output
    assert re.findall(r"(?m)^ +\w*(?:Prolog|Epilog)=(.*)$", output) == [
        f"/etc/slurm/rad/{hook}.sh"
        for hook in ("prolog", "task_prolog", "epilog")  # as with --edit-slurm
    ]
    assert (
        "AccountingStorageTRES=gres/gpu,gres/shard\n    then rad doctor prints TRESBillingWeights" in output
    )


def test_it_names_the_nodes_and_their_shards(tmp_path: Path):
    output = install(tmp_path, "--node", "gpu[1-4]", "--gpus", "4")
    assert "NodeName=gpu[1-4] ... Gres=gpu:4,shard:552" in output
    assert [f"NodeName=gpu[1-4] Name=shard Count=138 File=/dev/nvidia{n}" in output for n in range(5)] == [
        *[True] * 4,
        False,
    ]
    assert load_config(tmp_path / "etc/rad/rad.toml").partitions["gpu"].shards_per_gpu == 138


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"node": "gpu[1-"}, r"--node gpu\[1-: write it like gpu\[1-4\]"),
        ({"shard_mib": 99_999, "gpu_memory_mib": 40_330}, "choose a smaller --shard-mib"),
    ],
)
def test_values_that_no_site_can_have_are_refused(more: dict[str, Any], said: str) -> None:
    given = {"node": "n0", "gpu_memory_mib": 143_156, "shard_mib": 1024, **more}
    with pytest.raises(ConfigError, match=said):
        install_values(
            prefix="/opt/rad/venv",
            etc="/etc/rad",
            mode="observe",
            partition="gpu",
            gpus=1,
            slurm_user="root",
            clock=SystemClock(),
            **given,
        )


def test_a_node_with_gpus_of_several_types_gets_a_table_for_each(tmp_path: Path):
    gpus = [
        {"device": f"/dev/nvidia{n}", "type": kind, "shards": shards}
        for n, (kind, shards) in enumerate([("a100", "38"), ("a100", "38"), ("h200", "138")])
    ]
    values, _ = install_values(
        prefix="/opt/rad/venv",
        etc="/etc/rad",
        mode="observe",
        partition="gpu",
        node="n0",
        gpus=1,
        gpu_memory_mib=143156,
        shard_mib=1024,
        slurm_user="root",
        clock=SystemClock(),
    )
    places = {"etc": "/etc/rad", "units": "/u", "logrotate": "/l", "slurm": "/etc/slurm"}
    said = {
        step.action: step.content.decode()
        for step in plan(values, places, root=tmp_path, gpus=gpus, with_key=False)
    }
    assert said["change"] == "NodeName=n0 ... Gres=gpu:a100:2,gpu:h200:1,shard:a100:76,shard:h200:138"
    tables = parse_config(toml.loads(f"[partition.gpu]\ncollocate = true\n{said['types']}"), origin="here")
    sizes = tables.partitions["gpu"].sizes
    assert [(size.type, size.shards) for size in sizes] == [("a100", 38), ("h200", 138)]


@pytest.mark.parametrize(("version", "spread"), [((22, 5, 8), 0), ((24, 11, 5), 4), (None, 0)])
def test_a_slurm_that_can_share_jobs_of_several_gpus_is_informed_to(
    version: tuple[int, int, int] | None, spread: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(values_module, "installed_version", lambda: version)
    output = install(tmp_path, "--gpus", "4")
    settings = load_config(tmp_path / "etc/rad/rad.toml").partitions["gpu"]
    line = next(line for line in output.splitlines() if "SelectTypeParameters=" in line)
    words = line.partition("SelectTypeParameters=")[2]
    assert max_shard_gpus_of(version or (0, 0, 0), words, ["gpu:4,shard:552"]) == spread
    assert settings.share_multi_gpu is bool(spread)
    simulated = settings_of(None, None, version or (22, 5, 0))
    assert replace(settings, collocate=False, gpu_memory_mib=0, shards_per_gpu=0) == simulated, (
        "`rad simulate` tries what was installed"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_key_belongs_to_the_user_that_reads_it(tmp_path: Path):
    install(tmp_path, "--key", "--slurm-user", "nobody")
    key = (tmp_path / "etc/rad/key").stat()
    assert (key.st_uid, key.st_mode & 0o777) == (pwd.getpwnam("nobody").pw_uid, 0o600)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_user_that_is_unknown_here_is_refused_by_name(tmp_path: Path, more: tuple[str, ...]):
    words = ["install", "--root", str(tmp_path), "--gpu-memory-mib", "143156", "--slurm-user"]
    result = CliRunner().invoke(main, [*words, "nosuchuser", *more])
    assert (result.exit_code, files(tmp_path)) == (2, {})
    assert result.output == "rad install: this machine knows no user nosuchuser; give the user id\n"
    assert CliRunner().invoke(main, [*words, "64030", "--dry-run"]).exit_code == 0


def test_it_begins_by_observing(tmp_path: Path):
    install(tmp_path / "a")
    assert load_config(tmp_path / "a/etc/rad/rad.toml").mode == "observe"
    install(tmp_path / "b", "--mode", "enforce")
    assert load_config(tmp_path / "b/etc/rad/rad.toml").mode == "enforce"


def test_a_dry_run_writes_nothing(tmp_path: Path):
    output = install(tmp_path, "--dry-run", "--key")
    assert files(tmp_path) == {}
    assert 'mode = "observe"' in output


def test_an_admins_file_is_never_overwritten(tmp_path: Path):
    (tmp_path / "etc/rad").mkdir(parents=True)
    (tmp_path / "etc/rad/rad.toml").write_text("# mine\n")
    output = install(tmp_path)
    assert (tmp_path / "etc/rad/rad.toml").read_text() == "# mine\n"
    assert f"differs {tmp_path}/etc/rad/rad.toml: not changed" in output


def test_an_invalid_rad_toml_is_given_no_partition(tmp_path: Path):
    (tmp_path / "etc/rad").mkdir(parents=True)
    (tmp_path / "etc/rad/rad.toml").write_text('mode = "enforce"\nmod = "enforce"\n')
    result = CliRunner().invoke(main, ["install", "--root", str(tmp_path), "--gpu-memory-mib", "40330"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"rad install: {tmp_path}/etc/rad/rad.toml:2: "), result.stderr
    assert list(files(tmp_path)) == ["etc/rad/rad.toml"]


def test_again_changes_nothing_and_keeps_the_key(tmp_path: Path):
    install(tmp_path, "--key")
    key = (tmp_path / "etc/rad/key").read_bytes()
    output = install(tmp_path, "--key")
    assert (tmp_path / "etc/rad/key").read_bytes() == key
    assert "write" not in output.split("add to")[0]


def written_by_an_older_release(root: Path, name: str) -> Path:
    """Make an installed file and the list of what was installed say what another release would have written."""
    path = root / name
    path.write_text("-- of before\n")
    listed = read_installed(root / "etc/rad/installed.sha256")
    manifest = root / "etc/rad/installed.sha256"
    manifest.write_bytes(list_of({**listed, f"/{name}": {digest(b"-- of before\n")}}))
    return path


def seconds_of(path: Path) -> int:
    """Return the time of a file's last change in whole seconds, as slurmctld compares it."""
    return int(path.stat().st_mtime)


def test_slurmctld_loads_what_a_release_renews(tmp_path: Path):
    install(tmp_path)
    script = tmp_path / "etc/slurm/job_submit.lua"
    for path in tmp_path.rglob("*.lua"):
        os.utime(path, (1000, 1000))
    assert "update" not in install(tmp_path)
    assert seconds_of(script) == 1000
    renewed = written_by_an_older_release(tmp_path, "etc/slurm/rad/rad.lua")
    assert f"update {renewed}\n" in install(tmp_path)
    assert renewed.read_bytes() == (lua_folder() / "rad.lua").read_bytes()
    assert seconds_of(script) > 1000


def cut_off(root: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an install end at the file of that name, as one that is killed or that may not write there."""

    def fails(each: transaction.Write, new: bytes) -> None:
        if each.path.name == at:
            raise OSError(30, "Read-only file system", str(each.path))
        stage(each, new)

    stage = transaction._stage
    with monkeypatch.context() as patched:
        patched.setattr(transaction, "_stage", fails)
        result = CliRunner().invoke(main, ["install", "--root", str(root), "--gpu-memory-mib", "143156"])
    assert (result.exit_code, f"{at}: Read-only file system" in result.output) == (2, True)


WRITTEN = [path.name for path in lua_folder().glob("*.lua")] + ["prolog.sh", "radd.service", "rad"]


@pytest.mark.parametrize("at", WRITTEN)
def test_a_first_install_that_is_cut_off_anywhere_is_taken_back_whole(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(tmp_path, at, monkeypatch)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("at", ["rad.lua", "rad_json.lua", "rad_signed_booking.lua", "job_submit.lua"])
def test_an_upgrade_that_is_cut_off_anywhere_is_finished_by_the_next_of_any_release(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had renewed by then was no job's: not changed for ever, and its release next to all later ones."""
    install(tmp_path)
    script = tmp_path / "etc/slurm/job_submit.lua"
    everything = list(tmp_path.rglob("*.lua"))
    for path in everything:
        written_by_an_older_release(tmp_path, str(path.relative_to(tmp_path)))
        os.utime(path, (1000, 1000))
    cut_off(tmp_path, at, monkeypatch)
    folder = tmp_path / "lua"
    folder.mkdir()
    for path in lua_folder().glob("*.lua"):
        (folder / path.name).write_text(f"-- the release after that\n{path.read_text()}")
    with monkeypatch.context() as patched:
        patched.setattr(installing, "lua_folder", lambda: folder)
        assert "differs" not in install(tmp_path)
    assert all(
        (folder / path.name).read_bytes() == path.read_bytes()
        for path in everything
        if "settings" not in path.name
    )
    assert "differs" not in install(tmp_path)
    assert max(seconds_of(path) for path in everything) == seconds_of(script)


def test_an_upgrade_cut_off_before_slurmctld_was_informed_is_reported_by_the_next(tmp_path: Path) -> None:
    install(tmp_path)
    script = tmp_path / "etc/slurm/job_submit.lua"
    os.utime(script, (1000, 1000))
    install(tmp_path)
    assert seconds_of(script) > 1000


def test_a_script_of_the_sites_own_loads_what_a_release_renews(tmp_path: Path):
    install(tmp_path)
    script = tmp_path / "etc/slurm/job_submit.lua"
    script.write_text("-- of the site\n")
    os.utime(script, (1000, 1000))
    written_by_an_older_release(tmp_path, "etc/slurm/rad/rad_signed_booking.lua")
    install(tmp_path)
    assert script.read_text() == "-- of the site\n"
    assert seconds_of(script) > 1000


def test_an_upgrade_takes_what_it_is_not_distinguished_from_what_is_there(tmp_path: Path) -> None:
    """`rad install` alone gave radd to another user, and required a controller to know the memory of its GPUs."""
    slurm_conf = tmp_path / "etc/slurm/slurm.conf"
    slurm_conf.parent.mkdir(parents=True)
    slurm_conf.write_text("SlurmUser=nobody\n")
    install(tmp_path, "--partition", "shared", "--key")
    settings = (tmp_path / "etc/slurm/rad/rad_settings.lua").read_text()
    assert f"[{pwd.getpwnam('nobody').pw_uid}] = true" in settings
    assert "User=nobody" in (tmp_path / "etc/systemd/system/radd.service").read_text()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = CliRunner().invoke(main, ["install", "--root", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert not {"write", "update", "differs"} & {line.split()[0] for line in result.output.splitlines()}
    assert "... TRESBillingWeights=" not in result.output, "a site has weights of its own"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("line", "user"),
    [("", "root"), ("SlurmUser=7", "7"), ("slurmuser = admin # us", "admin"), (None, "slurm")],
)
def test_slurmctlds_user_is_slurm_confs(tmp_path: Path, line: str | None, user: str) -> None:
    if line is not None:
        (tmp_path / "slurm.conf").write_text(f"ClusterName=a\n{line}\n")
    there = found(tmp_path / "rad.toml", tmp_path / "slurm.conf", None)
    assert (there.slurm_user, there.partition, there.gpu_memory_mib) == (user, "gpu", None)


def test_slurms_own_scripts_come_after_what_they_load(tmp_path: Path):
    lines = [line.split("/")[-1] for line in install(tmp_path).splitlines() if line.endswith(".lua")]
    assert lines[-4:] == ["rad.lua", "rad_cli.lua", "cli_filter.lua", "job_submit.lua"]
    assert set(lines[:-2]) == lua_modules()


def test_no_half_of_a_file_stays_where_the_disk_is_full(tmp_path: Path):
    with small_disk(tmp_path / "disk", "size=1m") as root:
        for folder in ("etc/rad", "etc/slurm/rad", "etc/systemd/system", "etc/logrotate.d"):
            (root / folder).mkdir(parents=True)
        with (root / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
            while True:
                filler.write(bytes(4096))
        result = CliRunner().invoke(
            main, ["install", "--root", str(root), "--gpu-memory-mib", "143156", "--key"]
        )
        assert result.exit_code == 2 and "its file system is full" in result.output
        assert set(files(root)) == {"filler"}  # an empty key would be kept as the cluster's


def test_a_script_that_is_changed_by_the_same_command_is_not_called_left_alone(tmp_path: Path) -> None:
    step = Step(action="differs", path=tmp_path / "job_submit.lua", content=b"rad()\n", why="so it is")
    assert "not changed, because so it is; its new content" in as_text([step], verbose=False)
    assert as_text([step], verbose=True, edited=True) == f"keep {tmp_path}/job_submit.lua: your own"


@pytest.mark.parametrize("how", ["changed", "unknown", "older"])
def test_doctor_says_of_a_lua_file_what_install_would_do(tmp_path: Path, how: str) -> None:
    """Doctor's fix was "run: rad install", which leaves alone what was changed by hand."""
    values, gpus = install_values(
        prefix="/opt/rad/venv",
        etc=str(tmp_path),
        mode="observe",
        partition="gpu",
        node="n0",
        gpus=1,
        gpu_memory_mib=143156,
        shard_mib=1024,
        slurm_user="root",
        clock=SystemClock(),
    )
    places = {
        "etc": str(tmp_path),
        "slurm": str(tmp_path),
        "units": f"{tmp_path}/u",
        "logrotate": f"{tmp_path}/l",
    }
    root = Path("/")
    (tmp_path / "slurm.conf").write_text("JobSubmitPlugins=lua\n")
    steps = plan(values, places, root=root, gpus=gpus, with_key=False)
    change_together(installing.writes(steps, places, root=root), tmp_path)
    path, manifest = tmp_path / "rad" / "rad_job.lua", tmp_path / "installed.sha256"
    path.write_text(path.read_text() + "-- another line\n")
    listed = read_installed(manifest)
    edited = digest(path.read_bytes())
    known = {"changed": listed[str(path)], "unknown": frozenset[str](), "older": {edited}}
    manifest.write_bytes(list_of({**listed, str(path): known[how]}))

    def reported() -> Finding:
        facts = gather(tmp_path / "rad.toml", {"SLURM_CONF": f"{tmp_path}/slurm.conf"}, SystemClock())
        return next(each for each in check_lua(facts) if each.subject == "job_submit.lua")

    steps = {step.path: step for step in plan(values, places, root=root, gpus=gpus, with_key=False)}
    found = reported()
    assert found.level == "warn" and "rad_job.lua" in found.text
    if how == "older":
        assert (steps[path].action, found.fix) == ("update", "run: rad install")
        return
    whys = {"changed": "it was changed since rad install wrote it", "unknown": "rad install did not write it"}
    assert f"differs {path}: not changed, because {whys[how]}; its" in as_text([steps[path]], verbose=False)
    assert f"rad_job.lua (not changed, because {whys[how]})" in found.text
    assert found.fix == "unless this is intended, move rad_job.lua away, then run: rad install"
    path.write_bytes(steps[path].content)
    script = tmp_path / "job_submit.lua"
    script.write_text(script.read_text() + "-- another line\n")
    assert (reported().level, reported().text) == ("ok", f"calls RAD; not changed, because {whys['changed']}")


def test_without_gpus_and_without_their_memory_it_prompts(tmp_path: Path):
    result = CliRunner().invoke(main, ["install", "--root", str(tmp_path)])
    assert (result.exit_code, "add --gpu-memory-mib" in result.output) == (2, True)
    assert "nvidia-smi --query-gpu" in result.output, "how it is found"


@pytest.mark.parametrize("command", ["doctor", "status", "history", "install", "calibrate"])
def test_every_command_explains_itself(command: str):
    result = CliRunner().invoke(main, [command, "-h"])
    assert result.exit_code == 0
    assert len(result.output.splitlines()) >= 5

"""`rad uninstall` leaves a machine as it was before `rad install`, and never removes what Slurm still names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.admin.cli import main
from slurm_plugin.admin.install import uninstall as uninstalling
from slurm_plugin.admin.install import uninstall_steps
from slurm_plugin.admin.install.slurm_lines import gres_conf_without, slurm_conf_without
from slurm_plugin.admin.install.transaction import change_together
from slurm_plugin.admin.install.uninstall_steps import Removal

SLURM_CONF = """\
# /etc/slurm/slurm.conf of a site. Prolog=/etc/rad/prolog.sh is what RAD wants, says a comment.
ClusterName=lab
GresTypes=gpu
SelectTypeParameters=CR_Core_Memory   # as ever
AccountingStorageTRES=gres/gpu
JobSubmitPlugins=all_partitions
Epilog=/etc/slurm/epilog.d/*
NodeName=gpu[1-4] CPUs=64 Gres=gpu:a100:4 State=UNKNOWN
NodeName=cpu[1-9] CPUs=64
PartitionName=gpu Nodes=gpu[1-4] \\
    Default=YES
"""
WITH_RAD = (
    SLURM_CONF.replace("GresTypes=gpu", "GresTypes=gpu,shard")
    .replace("=CR_Core_Memory ", "=CR_Core_Memory,LL_SHARED_GRES ")
    .replace("=gres/gpu\n", "=gres/gpu,gres/shard\n")
    .replace("=all_partitions\n", "=all_partitions,lua\nCliFilterPlugins=lua\n")
    .replace("Gres=gpu:a100:4", "Gres=gpu:a100:4,shard:156")
    + "Prolog=/etc/rad/prolog.sh\nTaskProlog=/etc/rad/task_prolog.sh\n"
)
GRES_CONF = "NodeName=gpu[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-3]\n"
WITH_SHARDS = f"{GRES_CONF}NodeName=gpu[1-4] Name=shard Count=156 File=/dev/nvidia[0-3]\n"


def rad(root: Path, command: str, *options: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, [command, "--root", str(root), *options])
    assert result.exit_code == status, result.output
    return result.output


def install(root: Path, *options: str) -> str:
    return rad(root, "install", "--gpu-memory-mib", "40000", *options)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def no_hooks(root: Path) -> None:
    """Do what `rad uninstall` says that comes last: no slurmd starts the hooks any more."""
    for path in [*(root / "etc/rad").glob("*.sh"), *(root / "etc/slurm/rad").glob("*.sh")]:
        path.unlink()


def done(removal: Removal) -> None:
    change_together(uninstalling.writes(removal, ()), removal.manifest.parent)
    uninstalling.tidy(removal)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    slurm = tmp_path / "etc" / "slurm"
    slurm.mkdir(parents=True)
    (slurm / "slurm.conf").write_text(SLURM_CONF)
    (slurm / "gres.conf").write_text(GRES_CONF)
    return tmp_path


def add_rad(site: Path) -> None:
    (site / "etc/slurm/slurm.conf").write_text(WITH_RAD)
    (site / "etc/slurm/gres.conf").write_text(WITH_SHARDS)


def test_what_was_written_goes_and_nothing_else(site: Path) -> None:
    before = files(site)
    install(site)
    assert files(site) != before
    assert f"rm {site}/etc/rad/*.sh {site}/etc/slurm/rad/*.sh" in rad(site, "uninstall")
    no_hooks(site)
    rad(site, "uninstall")
    assert files(site) == before
    assert "nothing of `rad install`" in rad(site, "uninstall")


def test_slurms_files_come_back_byte_for_byte(site: Path) -> None:
    before = files(site)
    install(site)
    add_rad(site)
    (site / "etc/slurm/slurm.conf").chmod(0o640)
    said = rad(site, "uninstall", "--edit-slurm", status=1)
    assert "Gres=gpu:a100:4,shard:156" in said and "restart slurmctld first" in said
    assert (site / "etc/rad/prolog.sh").exists(), "slurmd still runs with it"
    assert (site / "etc/slurm/slurm.conf").stat().st_mode & 0o777 == 0o640
    rad(site, "uninstall", "--edit-slurm")
    no_hooks(site)
    rad(site, "uninstall", "--edit-slurm")
    saved = {f"etc/slurm/{name}{uninstalling.SAVED}" for name in ("slurm.conf", "gres.conf")}
    after = files(site)
    assert {name: text for name, text in after.items() if name not in saved} == before
    assert after[f"etc/slurm/slurm.conf{uninstalling.SAVED}"].decode() == WITH_RAD


def test_an_image_whose_slurm_conf_is_this_machines_changes_nothing_here(site: Path, tmp_path: Path) -> None:
    install(site)
    add_rad(site)
    here = tmp_path.parent / f"{tmp_path.name}.conf"
    (site / "etc/slurm/slurm.conf").rename(here)
    (site / "etc/slurm/slurm.conf").symlink_to(here)
    assert "leads out of" in rad(site, "uninstall", "--edit-slurm", status=2)
    assert here.read_text() == WITH_RAD


def test_what_slurm_names_stays_without_the_option_to_edit(site: Path) -> None:
    install(site)
    add_rad(site)
    said = rad(site, "uninstall", status=1)
    assert "Prolog=/etc/rad/prolog.sh  ->  (goes)" in said and "--edit-slurm" in said
    left = files(site)
    assert left["etc/slurm/slurm.conf"].decode() == WITH_RAD
    assert {"etc/rad/prolog.sh", "etc/rad/task_prolog.sh", "etc/slurm/job_submit.lua"} <= set(left)
    assert "has no effect" in rad(site, "uninstall", status=1)
    assert "python" not in left["etc/rad/epilog.sh"].decode(), "slurm.conf names another Epilog"


def test_shards_of_a_site_that_never_heard_of_us_stay(site: Path) -> None:
    (site / "etc/slurm/slurm.conf").write_text(WITH_RAD.replace("/etc/rad/", "/site/"))
    (site / "etc/slurm/gres.conf").write_text(WITH_SHARDS)
    before = files(site)
    assert "nothing of `rad install`" in rad(site, "uninstall", "--edit-slurm")
    assert files(site) == before


def test_lines_go_also_where_the_folder_of_rads_is_gone(site: Path) -> None:
    add_rad(site)
    rad(site, "uninstall", "--edit-slurm", status=1)
    text = (site / "etc/slurm/slurm.conf").read_text()
    assert "/etc/rad/prolog.sh" not in text.partition("\n")[2] and "shard" not in text


def test_a_rad_toml_that_an_earlier_release_recorded_as_slurms_goes_too(site: Path) -> None:
    install(site)
    toml = site / "etc/rad/rad.toml"
    text = toml.read_text()
    toml.write_text(f"# 39\n{text}")
    for name, said in (("before", text), ("after", f"# 39\n{text}")):
        kept = site / "etc/rad/slurm-files" / name / "etc/rad/rad.toml"
        kept.parent.mkdir(parents=True)
        kept.write_text(said)
    assert f"remove {toml}" in rad(site, "uninstall", "--edit-slurm") and not toml.exists()


def test_as_soon_as_shards_go_no_job_requests_them(site: Path) -> None:
    install(site)
    add_rad(site)
    rad(site, "uninstall", "--edit-slurm", status=1)
    for name in ("job_submit.lua", "cli_filter.lua"):
        assert "require" not in (site / "etc/slurm" / name).read_text(), "slurmctld was not restarted yet"
    install(site)
    assert "require" in (site / "etc/slurm/job_submit.lua").read_text()


def test_a_stub_becomes_a_hook_again_also_where_the_list_is_lost(site: Path) -> None:
    install(site)
    hooks = {name: text for name, text in files(site).items() if name.endswith(".sh")}
    rad(site, "uninstall")
    (site / "etc/rad/installed.sha256").unlink()
    assert "differs" not in install(site)
    assert hooks.items() <= files(site).items()


def test_what_slurmctld_runs_with_counts_too(site: Path) -> None:
    """slurm.conf was changed, and slurmctld has not read it yet."""
    install(site)
    running = {"epilog[0]": "/etc/rad/epilog.sh", "jobsubmitplugins": "lua", "prolog": "(null)"}
    removal = uninstalling.plan(root=site, etc="/etc/rad", slurm="/etc/slurm", running=running)
    named = {str(path.relative_to(site)) for path in removal.named}
    assert "etc/rad/epilog.sh" in named and "etc/slurm/job_submit.lua" in named
    assert site / "etc/rad/prolog.sh" in removal.stubs
    done(removal)
    again = uninstalling.plan(root=site, etc="/etc/rad", slurm="/etc/slurm", running={})
    left = {str(path.relative_to(site)) for path in (*again.remove, *again.stubs)}
    assert named <= left, "they are not forgotten meanwhile"


def test_a_lua_script_of_the_sites_own_keeps_nothing_of_rads(site: Path) -> None:
    """Slurm goes on to load the site's script; RAD's files are needed as long as a loaded one calls them."""
    own = site / "etc/slurm/job_submit.lua"
    own.write_text('local rad_found, rad = pcall(require, "rad")\n')
    install(site)
    running = {"jobsubmitplugins": "lua"}

    def removed() -> set[str]:
        removal = uninstalling.plan(root=site, etc="/etc/rad", slurm="/etc/slurm", running=running)
        return {str(path.relative_to(site / "etc/slurm")) for path in removal.remove if path.suffix == ".lua"}

    assert removed() == {"cli_filter.lua"}
    own.write_text("-- radius = 3\n")
    assert {"rad/rad.lua", "rad/rad_cli.lua", "rad/rad_settings.lua"} <= removed()
    running["clifilterplugins"] = "lua"
    assert removed() == set(), "slurmctld has not read it yet, and RAD's cli_filter.lua calls the rest"


def test_while_slurmctld_does_not_answer_whatever_slurm_may_start_stays(site: Path) -> None:
    """slurm.conf was changed, and slurmd runs with what it read before: a Prolog that is missing drains its node."""
    install(site)
    removal = uninstalling.plan(root=site, etc="/etc/rad", slurm="/etc/slurm", running=None)
    names = {path.name for path in removal.named}
    assert {"prolog.sh", "task_prolog.sh", "epilog.sh", "job_submit.lua"} <= names
    assert not any(path.suffix in (".sh", ".lua") for path in removal.remove)
    (site / "etc/slurm/slurm.conf").unlink()
    assert not uninstalling.plan(root=site, etc="/etc/rad", slurm="/etc/slurm", running=None).named


def test_hooks_of_a_configless_node_stay_as_stubs(site: Path) -> None:
    install(site)
    (site / "run/slurm/conf").mkdir(parents=True)
    (site / "etc/slurm/slurm.conf").rename(site / "run/slurm/conf/slurm.conf")
    rad(site, "uninstall")
    assert "exit 0" in (site / "etc/rad/prolog.sh").read_text()


def test_what_a_user_changed_stays_and_so_does_the_key(site: Path) -> None:
    install(site, "--key")
    toml = site / "etc/rad/rad.toml"
    toml.write_text(toml.read_text() + "# mine\n")
    assert f"keep {toml}: changed" in rad(site, "uninstall")
    no_hooks(site)
    rad(site, "uninstall")
    assert sorted(path.name for path in (site / "etc/rad").iterdir()) == ["key", "rad.toml"]


def test_a_dry_run_changes_nothing(site: Path) -> None:
    install(site)
    add_rad(site)
    before = files(site)
    rad(site, "uninstall", "--edit-slurm", "--dry-run", status=1)
    assert files(site) == before


def test_a_new_release_renews_what_no_admin_touched(site: Path) -> None:
    install(site)
    prolog, toml = site / "etc/rad/prolog.sh", site / "etc/rad/rad.toml"
    said = install(site, "--prefix", "/opt/other", "--partition", "other")
    assert f"update {prolog}" in said and f"differs {toml}" in said, "settings are never renewed"
    assert "/opt/other/bin/python" in prolog.read_text() and prolog.stat().st_mode & 0o777 == 0o755
    prolog.write_text(prolog.read_text() + "# mine\n")
    assert f"differs {prolog}" in install(site)
    assert prolog.read_text().endswith("# mine\n")


def test_units_of_a_package_are_not_written_twice(site: Path) -> None:
    install(site)
    written = site / "etc/systemd/system"
    packaged = site / "usr/lib/systemd/system"
    packaged.mkdir(parents=True)
    for path in written.iterdir():
        path.rename(packaged / path.name)
    assert f"keep {packaged}/radd.socket" in install(site)
    assert list(written.iterdir()) == []
    install(site, "--slurm-user", "nobody")
    assert sorted(path.name for path in written.iterdir()) == ["radd.service", "radd.socket"], (
        "this site's own"
    )


lines = st.lists(
    st.sampled_from(
        [
            *SLURM_CONF.splitlines(),
            "",
            "Include other.conf",
            "  gresTYPES = gpu , mps",
            "Prolog=/site/prolog",
            "NodeName=x Gres=gpu:shardy:1,mps:4 Feature=shard",
            "\ttext",
        ]
    )
)


@given(lines=lines, ending=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
def test_a_file_that_never_heard_of_us_stays_as_it_is(lines: list[str], ending: str, last: bool) -> None:
    text = ending.join(lines) + (ending if last else "")
    rads = {"/etc/rad/prolog.sh", "/etc/slurm/job_submit.lua"}
    assert slurm_conf_without(text, rads) == text
    assert gres_conf_without(text) == text


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("Gres=shard:4,gpu:1 CPUs=2", "Gres=gpu:1 CPUs=2"),
        ("Gres=gpu:1,shard:4,mps:2", "Gres=gpu:1,mps:2"),
        ("CPUs=2 Gres=shard:4", "CPUs=2"),
        ("Gres=shard:4 CPUs=2", "CPUs=2"),
    ],
)
def test_shards_leave_a_node_wherever_they_stand(line: str, left: str) -> None:
    assert slurm_conf_without(f"NodeName=n {line}\n", ()) == f"NodeName=n {left}\n"


def test_shards_weigh_nothing_without_us() -> None:
    line = "PartitionName=gpu TRESBillingWeights=CPU=1.0,GRES/gpu=39.0{} State=UP\n"
    assert slurm_conf_without(line.format(",GRES/shard=1.0"), ()) == line.format("")
    assert (
        slurm_conf_without("PartitionName=a TRESBillingWeights=GRES/shard=1 Nodes=b\n", ())
        == "PartitionName=a Nodes=b\n"
    )


def test_a_lua_script_of_the_sites_own_keeps_its_plugin() -> None:
    assert slurm_conf_without("JobSubmitPlugins=lua\n", {"/etc/rad/prolog.sh"}) == "JobSubmitPlugins=lua\n"


def test_scripts_request_no_shards_before_slurm_conf_loses_them(site: Path) -> None:
    """A run may be killed between two files: no submission may ask for shards, nor a step of such a job for a GPU."""
    install(site)
    for name, text in (("slurm.conf", WITH_RAD), ("gres.conf", WITH_SHARDS)):
        (site / "etc/slurm" / name).write_text(text)
    removal = uninstalling.plan(root=site, etc="/etc/rad", slurm="/etc/slurm", running={})
    order = [each.path.name for each in uninstalling.writes(removal, removal.edits)]
    names = ("job_submit.lua", "cli_filter.lua", "slurm.conf", "gres.conf")
    assert sorted(names, key=order.index) == list(names)


def test_jobs_with_shards_are_found_in_every_spelling_of_slurms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that requests by task has no `%b`: on 24.11 the printed check found nothing while it ran."""
    rows = (
        "7          cpu=1,node=1,gres/shard=4   gres/shard:4   N/A   N/A   N/A",
        "8_[1-3]    N/A   N/A   gres/shard:4   N/A   N/A",
        "9          cpu=1,gres/gpu=1   gres:gpu:1   N/A   N/A   N/A",
        "10         N/A   gres:shard:2   N/A   N/A   N/A",
    )
    typed: list[list[str]] = []

    def run(argv: list[str], **_: object) -> str:
        typed.append(argv)
        return "\n".join(rows)

    monkeypatch.setattr(uninstall_steps, "run", run)
    assert uninstall_steps.shard_jobs({}) == ("7", "8_[1-3]", "10")
    assert all(f"tres-per-{what}:" in typed[0][-1] for what in ("node", "task", "job", "socket"))
    shown = re.compile(re.findall(r"grep -E '(.+)'", uninstall_steps.UNASKED)[0])
    assert [row.split()[0] for row in rows if shown.search(row)] == ["7", "8_[1-3]", "10"]
    assert uninstall_steps.HOLDERS in uninstall_steps.UNASKED

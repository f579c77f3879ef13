"""Limits and billing: a GPU's worth costs the same in whichever way it is taken, and doctor's settings make it so."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.admin.billing import fair, line, parse_weights, unit
from slurm_plugin.admin.doctor.checks.limits import check_limits
from slurm_plugin.admin.doctor.facts import Facts
from slurm_plugin.admin.doctor.fixes import LineChange
from slurm_plugin.core.config.load import Config, PartitionConfig
from slurm_plugin.slurm.files.conf_lines import read_conf
from slurm_plugin.slurm.queries.limits import Limit, parse_limits
from slurm_plugin.slurm.queries.live import Live
from tests.unit.slurm_plugin.admin.doctor.test_report import GOOD

SHARDS = 138

SITE_WEIGHTS = st.sampled_from(
    ["", "GRES/gpu=16", "CPU=1.0,Mem=0.25G,GRES/gpu=16.5", "GRES/gpu=0.1,GRES/shard=2"]
)


@given(SITE_WEIGHTS, st.lists(st.integers(1, 200), min_size=1, max_size=3), st.data())
def test_no_way_to_take_a_gpu_is_cheaper(text: str, counts: list[int], data: st.DataObject) -> None:
    before = parse_weights(text)
    factor = unit({str(n): (before, shards) for n, shards in enumerate(counts)})
    for shards in counts:
        after = parse_weights(line(before, shards, factor))
        assert after.gpu is not None and after.shard is not None
        assert fair(after, shards)
        assert after.gpu == (before.gpu or 1) * factor
        jobs, left = [], shards + 1
        while left:
            jobs.append(data.draw(st.integers(1, left)))
            left -= jobs[-1]
        assert sum(math.floor(float(after.shard) * job) for job in jobs) > after.gpu
        assert math.floor(float(after.shard) * shards) <= after.gpu


@pytest.mark.parametrize("shard", ["0", "0.41", "0.2"])
def test_what_slurm_rounds_to_nothing_is_not_fair(shard: str) -> None:
    assert not fair(parse_weights(f"GRES/gpu=16,GRES/shard={shard}"), 39)


QOS = Limit(owner="QOS normal", target="qos where name=normal", name="MaxTRESPerUser", tres={"gres/gpu": 2})


def site(
    *limits: Limit, counted: str = "gres/gpu,gres/shard", weights: str = "GRES/gpu=138,GRES/shard=1"
) -> Facts:
    settings = {
        "accountingstoragetype": "accounting_storage/slurmdbd",
        "accountingstorageenforce": "associations,limits,qos",
        "accountingstoragetres": f"cpu,mem,energy,node,billing,fs/disk,vmem,pages,{counted}",
    }
    live = Live(
        settings=settings,
        partitions={"gpu": {"nodes": "n[1-2]", "tresbillingweights": weights}, "cpu": {"nodes": "c1"}},
        nodes={"n1": {"gres": "gpu:2,shard:276"}, "c1": {"gres": "(null)"}},
    )
    return dataclasses.replace(GOOD, live=live, limits=limits)


def found(facts: Facts) -> list[tuple[str, str, str]]:
    return [(each.level, each.text, each.fix) for each in check_limits(facts) if each.level != "ok"]


def test_what_slurm_conf_says_already_needs_a_restart_alone(tmp_path: Path) -> None:
    """Right after `rad install --edit-slurm` doctor showed the same lines again."""
    conf = tmp_path / "slurm.conf"
    weights = "TRESBillingWeights=GRES/gpu=138,GRES/shard=1"
    facts = dataclasses.replace(site(QOS, counted="gres/gpu", weights="GRES/gpu=1"), slurm_conf_path=conf)
    for counted, billed in (("gres/gpu", ""), ("gres/gpu,gres/shard", weights)):
        cpu = f"PartitionName=cpu Nodes=c1 {'TRESBillingWeights=CPU=138' if billed else ''}"
        conf.write_text(f"AccountingStorageTRES={counted}\nPartitionName=gpu Nodes=n[1-2] {billed}\n{cpu}\n")
        fixes = [fix for _, _, fix in found(dataclasses.replace(facts, slurm=read_conf(conf)))][:2]
        if billed:
            assert fixes == ["run: systemctl restart slurmctld"] * 2
        else:
            assert f"{conf}:1: AccountingStorageTRES=gres/gpu,gres/shard" in fixes[0]
            assert f"{conf}:2: PartitionName=gpu Nodes=n[1-2] {weights}" in fixes[1]


def test_a_limit_that_counts_both_is_right() -> None:
    assert not found(site(dataclasses.replace(QOS, tres={"gres/gpu": 2, "billing": 276})))
    assert not found(site(weights="(null)"))


def test_a_limit_on_gpus_alone_does_not_bind_and_the_fix_is_a_command() -> None:
    ((level, text, fix),) = found(site(QOS))
    assert (level, "does not count jobs that share" in text) == ("fail", True)
    assert fix == "run: sacctmgr -i modify qos where name=normal set MaxTRESPerUser=billing=276"


def test_a_limit_on_both_by_themselves_lets_users_have_both() -> None:
    ((_, _, fix),) = found(site(dataclasses.replace(QOS, tres={"gres/gpu": 2, "gres/shard": 276})))
    assert fix.endswith("MaxTRESPerUser=billing=276")


def test_a_limit_that_allows_more_than_it_says() -> None:
    ((_, text, _),) = found(site(dataclasses.replace(QOS, tres={"gres/gpu": 2, "billing": 300})))
    assert "billing=300 allows more" in text


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"name": "MinTRESPerJob"}, "set MinTRESPerJob=gres/gpu=-1"),
        ({"name": "MaxTRESPerNode"}, "set MaxTRESPerNode=gres/shard=276"),
        ({"tres": {"gres/gpu": 0}}, "set MaxTRESPerUser=gres/shard=0"),
        ({"tres": {"gres/gpu:a100": 1}}, "set MaxTRESPerUser=billing=138"),
        ({"name": "GrpTRESMins", "tres": {"gres/gpu": 60}}, "set GrpTRESMins=billing=8280"),
    ],
)
def test_each_kind_of_limit(changes: dict[str, object], fix: str) -> None:
    ((level, _, said),) = found(site(dataclasses.replace(QOS, **changes)))  # type: ignore[arg-type]
    assert level == "fail" and said.endswith(fix)


def test_weights_of_gpus_alone_let_shared_jobs_go_free() -> None:
    ((level, text, fix),) = found(site(weights="CPU=1,GRES/gpu=16"))
    assert level == "fail" and "138 shards nothing" in text
    assert fix.splitlines() == [
        "PartitionName=gpu ... TRESBillingWeights=CPU=69,GRES/gpu=1104,GRES/shard=8",
        "PartitionName=cpu ... TRESBillingWeights=CPU=69",
    ], "its CPUs cost as much as before next to those of the other"
    assert "other weights are multiplied by 69 too" in text


def test_weights_are_multiplied_by_one_finding_that_its_fix_ends(tmp_path: Path) -> None:
    """Done one by one, the first would be multiplied again with the second."""
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageTRES=gres/gpu,gres/shard\n"
        "NodeName=n[1-2] Gres=gpu:2,shard:276\nNodeName=c1\n"
        "PartitionName=gpu Nodes=n1 TRESBillingWeights=CPU=1.0,GRES/gpu=8\n"
        "PartitionName=old Nodes=n2 TRESBillingWeights=CPU=0.5,GRES/gpu=4\n"
        "PartitionName=cpu Nodes=c1 TRESBillingWeights=Mem=0.25G\n"
    )
    facts = dataclasses.replace(GOOD, slurm=read_conf(conf), slurm_conf_path=conf, limits=())
    (wrong,) = [each for each in check_limits(facts) if each.level == "fail"]
    text = conf.read_text()
    for action in wrong.actions:
        assert isinstance(action, LineChange)
        text = action.applied(text)
    conf.write_text(text)
    assert [each.partition("Weights=")[2] for each in text.splitlines()[4:]] == [
        "CPU=69,GRES/gpu=552,GRES/shard=4",
        "CPU=34.5,GRES/gpu=276",
        "Mem=17.25G",
    ]
    done = dataclasses.replace(facts, slurm=read_conf(conf))
    assert [each.level for each in check_limits(done) if each.level == "fail"] == []


def test_every_partition_with_gpus_must_weigh_them_alike() -> None:
    facts = site(dataclasses.replace(QOS, tres={"gres/gpu": 2, "billing": 276}))
    assert facts.live is not None
    partitions = {**facts.live.partitions, "plain": {"nodes": "ALL"}}
    live = dataclasses.replace(facts.live, partitions=partitions)
    texts = {text for _, text, _ in found(dataclasses.replace(facts, live=live))}
    assert any(text.startswith("partition plain") for text in texts)
    fixes = {fix for _, _, fix in found(dataclasses.replace(facts, live=live))}
    assert {
        match[1]: match[2] for fix in fixes if (match := re.match(r"PartitionName=(\w+) ... \w+=(.*)", fix))
    } == {"plain": "GRES/gpu=138"}


def test_shards_that_are_not_counted() -> None:
    ((level, _, fix), *_) = found(site(QOS, counted="gres/gpu,gres/nvme"))
    assert level == "fail" and "AccountingStorageTRES=gres/nvme,gres/gpu,gres/shard\nrun: systemctl" in fix
    ((level, _, _),) = found(site(counted="gres/gpu", weights=""))
    assert level == "warn"


def test_a_user_limited_to_half_a_gpu_can_get_no_rerun_with_a_whole_one() -> None:
    half = dataclasses.replace(QOS, tres={"billing": 69})
    ((level, text, fix),) = found(site(half))
    assert (level, "less than a GPU (138)" in text, "recovery" in fix) == ("warn", True, True)
    facts = site(half)
    off = Config(partitions={"gpu": PartitionConfig(collocate=True, shards_per_gpu=138, recovery="off")})
    assert not found(dataclasses.replace(facts, config=off))


def test_limits_that_apply_to_no_job() -> None:
    facts = site(dataclasses.replace(QOS, tres={"gres/gpu": 2, "billing": 276}))
    assert facts.live is not None
    lax = dataclasses.replace(
        facts.live, settings={**facts.live.settings, "accountingstorageenforce": "associations"}
    )
    ((level, text, _),) = found(dataclasses.replace(facts, live=lax))
    assert (level, "they are not enforced" in text) == ("warn", True)


def test_a_site_without_a_database_or_without_sharing_is_left_alone() -> None:
    facts = site(QOS)
    assert facts.live is not None
    bare = dataclasses.replace(facts.live, settings={"accountingstoragetype": "(null)"})
    assert not list(check_limits(dataclasses.replace(facts, live=bare)))
    apart = Config(partitions={"gpu": PartitionConfig()})
    assert not list(check_limits(dataclasses.replace(facts, config=apart)))


def test_sacctmgr_as_it_prints() -> None:
    """Recorded on 24.11.5: `show qos` and `show assoc` in these columns."""
    qos = "normal||||||||gres/gpu=1,billing=39||\nfree|gres/gpu=4|||||||||\n".replace(
        "||||||||gres", "|||||||gres", 1
    )
    assoc = "root|||||||||\nlab|games||gres/gpu=1|||billing=39|||\nlab|||||||||\n"
    limits = parse_limits(qos, assoc, cluster="c")
    assert [(each.owner, each.name, dict(each.tres)) for each in limits] == [
        ("QOS normal", "MaxTRESPerUser", {"gres/gpu": 1, "billing": 39}),
        ("QOS free", "GrpTRES", {"gres/gpu": 4}),
        ("user games of account lab", "GrpTRES", {"gres/gpu": 1}),
        ("user games of account lab", "MaxTRESPerJob", {"billing": 39}),
    ]
    assert limits[2].target == "user where name=games account=lab cluster=c"

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.core.booking.decide import decide
from slurm_plugin.core.booking.gres_text import count_of, parse_gres
from slurm_plugin.core.booking.request import request_from
from slurm_plugin.core.booking.verification import least_given, mismatch_in, partition_mark
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.config.load import parse_config
from slurm_plugin.core.records.submission import Booking, MemoryEstimate, UserDirectives
from slurm_plugin.core.units import GIB
from slurm_plugin.slurm.queries.printed import parse_given

KEY = bytes(32)
CONFIG = parse_config(
    {
        "default_partition": "gpu",
        "partition": {
            "gpu": {"collocate": True, "gpu_memory_mib": 40_000, "share_multi_gpu": True},
            "big": {"collocate": True, "gpu_memory_mib": 80_000, "default": "collocate"},
            "plain": {},
        },
    },
    origin="rad.toml",
)
ITEM = st.sampled_from(
    ["gpu", "gpu:1", "gpu:2", "gpu:a100:1", "shard:1", "shard:12", "shard:39", "shard:78", "nvme:5"]
)
GRES = st.none() | st.lists(ITEM, min_size=1, max_size=2).map(lambda items: "gres:" + ",".join(items))
REQUESTS = st.fixed_dictionaries(
    {
        "user_id": st.just(1000),
        "partition": st.sampled_from([None, "gpu", "big", "plain", "gpu,big", "big,big"]),
        "gres": GRES,
        "tres_per_job": GRES,
        "tres_per_task": GRES,
        "tres_per_socket": GRES,
        "num_tasks": st.sampled_from([None, 1, 2, 4]),
        "min_nodes": st.sampled_from([None, 1, 2]),
    }
)
CLAIMS = st.builds(
    UserDirectives,
    memory_bytes=st.none() | st.integers(1, 90).map(lambda gib: gib * GIB),
    policy=st.sampled_from([None, "exclusive", "collocate"]),
    gpus=st.sampled_from([None, 2]),
)


def slurm_gives(request: dict[str, Any], fields: dict[str, str]) -> tuple[int, int]:
    """Return the GPUs and shards that Slurm gives on one node, by gres(7) and sbatch(1): the request as it ends up."""
    after = {**request, **fields}
    node, job, task, socket = (
        parse_gres(after.get(name) or None)
        for name in ("gres", "tres_per_job", "tres_per_task", "tres_per_socket")
    )
    tasks = int(after.get("num_tasks") or 1)

    def most(name: str) -> int:
        return max(
            count_of(node, name), count_of(job, name), count_of(task, name) * tasks, count_of(socket, name)
        )

    return most("gpu"), most("shard")


@given(request=REQUESTS, stated=CLAIMS, whole_as_gpu=st.booleans(), max_shard_gpus=st.sampled_from([0, 1, 4]))
def test_a_booking_is_what_slurm_will_give(
    request: dict[str, Any], stated: UserDirectives, whole_as_gpu: bool, max_shard_gpus: int
) -> None:
    """At submission: whatever is requested in whichever spelling, a booking says what Slurm gives for it."""
    estimate = stated.memory_bytes and MemoryEstimate(
        estimate_bytes=stated.memory_bytes, upper_bytes=stated.memory_bytes, confidence=None, source="stated"
    )
    message = {name: value for name, value in request.items() if value is not None}
    rewrite = decide(
        request_from(message),
        stated,
        estimate or None,
        config=CONFIG,
        whole_as_gpu=whole_as_gpu,
        max_shard_gpus=max_shard_gpus,
    )
    booking = rewrite.booking
    if booking is None or booking.changed:
        return  # no booking, or one that makes the Prolog ask Slurm
    gpus, shards = slurm_gives(request, rewrite.fields)
    partition = CONFIG.partition(request["partition"])
    assert partition is not None
    assert booking.shards == shards
    if booking.kind == "shared":
        assert booking.memory_bytes is not None and gpus == 0
        assert (
            booking.memory_bytes <= shards // booking.gpus * partition.shard_bytes
        )  # compute may ask for more
        assert shards % booking.gpus == 0 and booking.gpus <= max(1, max_shard_gpus)
    elif shards:
        assert shards == partition.shards and gpus == 0
    else:
        assert booking.gpus == gpus
    for name in (request["partition"] or "gpu").split(","):
        gpu_indices = booking.gpus if shards else gpus
        assert mismatch_in(booking, partition=name, gpu_indices=gpu_indices) is None
        assert mismatch_in(booking, partition="other", gpu_indices=gpu_indices) is not None
        assert mismatch_in(booking, partition=name, gpu_indices=gpu_indices + 1) is not None


@given(request=REQUESTS, stated=CLAIMS)
def test_the_mac_covers_what_binds(request: dict[str, Any], stated: UserDirectives) -> None:
    message = {name: value for name, value in request.items() if value is not None}
    booking = decide(request_from(message), stated, None, config=CONFIG).booking
    if booking is None:
        return
    text = signed_comment.signed_booking(booking, user_id=1000, key=KEY)
    for part in text.split(":")[2:-1]:
        forged = text.replace(f":{part}:", ":", 1)
        assert signed_comment.read_signed_booking(forged, user_id=1000, key=KEY) is None


def test_a_booking_of_another_of_ones_jobs_wins_nothing() -> None:
    whole = Booking(kind="whole", shards=39, partitions=(partition_mark("gpu"),), changed=True)
    assert mismatch_in(whole, partition="gpu", gpu_indices=1) == "only Slurm knows what its request gives"
    elsewhere = Booking(kind="whole", shards=39, partitions=(partition_mark("other"),))
    assert (
        mismatch_in(elsewhere, partition="gpu", gpu_indices=1)
        == "it was booked for another partition than gpu"
    )
    two = Booking(kind="whole", gpus=2, partitions=(partition_mark("gpu"),))
    assert mismatch_in(two, partition="gpu", gpu_indices=1) == "Slurm gave it 1 GPU and not 2"


TRUE = "     Nodes=n0 CPU_IDs=0 Mem=100 GRES=shard:3(IDX:0)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRUE, "shard:3"),
        ("     Nodes=n0 CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0,2)\n", "gpu:2"),
        ("     Nodes=n0 CPU_IDs=0 Mem=100 GRES=shard:3(3/39,0/39)\n", "shard:3"),
        ("     Nodes=n0 CPU_IDs=0 Mem=100 GRES=gpu:1g.10gb:1(IDX:0)\n", "gpu:1g.10gb:1"),
        ("     Nodes=n0 CPU_IDs=0 Mem=100 GRES=\n", ""),
        ("JobId=1 JobName=x\n" + TRUE.replace("shard:3", "gpu:4") + TRUE, "shard:3"),
        ("JobId=1 JobName=x\n" + TRUE.replace("shard:3", "shard:39") + TRUE, "shard:3"),
        (TRUE + "   Comment=x\n" + TRUE.replace("shard:3", "shard:39"), "shard:3"),
        ("no such line", ""),
    ],
)
def test_what_slurm_gave_is_read_and_forged_lines_only_lose(text: str, expected: str) -> None:
    """Found by trying: a job's name may hold a line `     Nodes=n0 CPU_IDs=0 Mem=100 GRES=shard:39(IDX:0)`."""
    assert parse_given(text) == expected


def test_nothing_given_is_nothing() -> None:
    assert least_given(()) == ()

"""`rad calibrate --deep`'s fitting, on what an H200 was recorded to do: it gives the rows of our own table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import recorded

from gpumemnet import gpus
from gpumemnet.calibration.fit import convolutions, derivations, segments, site_table
from gpumemnet.calibration.fit.convolutions import FITTED, ConvolutionSample
from gpumemnet.calibration.fit.parts import PARTS
from gpumemnet.calibration.measure import convolutions as measure_convolutions
from gpumemnet.errors import SetupError
from gpumemnet.gpu_memory.cudnn.conv_workspace import workspace_by
from gpumemnet.gpu_memory.rules import numbers
from gpumemnet.gpu_memory.rules.numbers import TABLE, Status
from gpumemnet.names import ConvPass
from gpumemnet.units import GIB, MIB

LIBRARIES = {"device", "process", "allocator", "cublas", "cudnn", "mps"}
REPORTED_BY = {
    "conv": "process",
    "dense": "process",
    "convs_only": "process",
    "segments": "allocator",
    "convolutions-0": "cudnn",
}
SEGMENTS = [
    [request * MIB // 2, segment * MIB] for request, segment in ((1, 2), (2, 2), (4, 20), (24, 12), (28, 14))
]
CUDNN, ALLOCATOR = numbers.of("cudnn", "h200"), numbers.of("allocator", "h200")
DEVICE = {
    "gpu": "NVIDIA H200",
    "torch": "2.11.0+cu130",
    "cuda": "13.0",
    "cudnn": "9.19",
    "driver": "580.159.04",
    "memory_bytes": 141 * GIB,
    "multiprocessors": 132,
    "threads": 2048,
}


@pytest.fixture(scope="module")
def samples() -> list[ConvolutionSample]:
    return [
        derivations.sample(values)
        for sweep in recorded.sweeps()[:4]
        for values in recorded.convolutions(sweep)["convolutions"]
    ]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for a site's own table, which is read again."""
    path = tmp_path / "rules.csv"
    monkeypatch.setattr(numbers, "SITE_TABLE", path)
    read_again()
    yield path
    read_again()


def read_again() -> None:
    for cache in (numbers.site_rules, numbers.rules, numbers.of, gpus.gpus):
        cache.cache_clear()


def test_the_allocators_rules_follow_from_recorded_segments() -> None:
    pairs = recorded.segments()["segments"]
    assert len(pairs) > 100
    assert segments.fit(pairs, ALLOCATOR) == ALLOCATOR


def test_other_segments_give_other_rules() -> None:
    def segment(request: int) -> int:
        if request <= 2 * MIB:
            return 4 * MIB
        return 32 * MIB if request < 16 * MIB else -(-request // (4 * MIB)) * 4 * MIB

    sizes = [512, *(mib * MIB + more for mib in range(1, 41) for more in (-512, 0, 512))]
    assert segments.fit([(size, segment(size)) for size in sizes], ALLOCATOR) == {
        "small": 2 * MIB,
        "small_segment": 4 * MIB,
        "large_segment": 32 * MIB,
        "large_direct": 16 * MIB,
        "large_round": 4 * MIB,
    }


@pytest.mark.parametrize("pairs", [[], [(512, 2 * MIB)], [(512, 256)], [(MIB, 2 * MIB), (4 * MIB, 20 * MIB)]])
def test_segments_of_another_form_are_left_alone(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(SetupError, match="left as they are"):
        segments.fit(pairs, ALLOCATOR)


def test_recorded_convolutions_give_the_shipped_numbers(samples: list[ConvolutionSample]) -> None:
    assert len(samples) > 2000
    fitted = convolutions.fit(samples, CUDNN)
    assert {name: one.value for name, one in fitted.items()} == {name: CUDNN[name] for name in FITTED}
    assert fitted["channel_bytes"].decided and fitted["few_channels"].decided


def drawn() -> list[dict[str, Any]]:
    """What a GPU that follows other rules would tell of the convolutions that are drawn, without the bytes."""
    values: list[dict[str, Any]] = []
    for seed in range(2):
        for call in measure_convolutions.convolutions(seed, near=bool(seed % 2)):
            batch, _, *sides = call["x"]
            y = [
                batch,
                call["w"][0],
                *(
                    (n + 2 * pad - k) // call["stride"] + 1
                    for n, pad, k in zip(sides, call["padding"], call["w"][2:], strict=True)
                ),
            ]
            shapes = {"x": call["x"], "y": y, "area": call["w"][2] * call["w"][3], "groups": call["groups"]}
            more = {"item_bytes": recorded.ITEM_BYTES[call["dtype"]], "strided": call["stride"] > 1}
            values += [{**shapes, **more, "kind": kind, "workspace_bytes": 0} for kind in ConvPass]
    return values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("channel_bytes", 32),
        ("few_channels", 8),
        ("small_kernel", 32),
        ("few_outputs", 128),
        ("strided_forward_channels", 128),
        ("strided_data_weights", 10_000),
        ("strided_weight_channels", 160),
    ],
)
def test_another_gpus_numbers_are_found(name: str, other: int) -> None:
    truth = {**CUDNN, name: other}
    values = [derivations.sample(each) for each in drawn()]
    fitted = convolutions.fit(
        [ConvolutionSample(one.plan, workspace_by(one.plan, truth)) for one in values], CUDNN
    )
    assert (fitted[name].value, fitted[name].decided) == (other, True)
    assert {rest: fitted[rest].value for rest in FITTED if rest != name} == {
        rest: CUDNN[rest] for rest in FITTED if rest != name
    }


def test_the_bases_follow_from_the_measured_rows() -> None:
    table = site_table.rows({"device": DEVICE, **recorded.bases()}, found_by="here")
    process = {rule.name: rule.value for rule in table.rules if rule.library == "process"}
    shipped = numbers.of("process", "h200")
    assert {name: process[name] for name in ("conv_base", "base", "without_cublas")} == {
        name: shipped[name] for name in ("conv_base", "base", "without_cublas")
    }


def all_seen(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "device": DEVICE,
        "conv": {"base_bytes": 760 * MIB},
        "dense": {"base_bytes": 742 * MIB},
        "convs_only": {"base_bytes": 632 * MIB},
        "segments": {"segments": SEGMENTS},
        "cublas": {"handle_bytes": 32 * MIB, "lt_bytes": MIB, "both_threads_bytes": 64 * MIB},
        "mps": {"server_bytes": 66 * MIB, "client_bytes": 532 * MIB},
        "convolutions-0": recorded.convolutions(recorded.sweeps()[0]),
    }  # fmt: skip
    return values | changes


def test_all_that_an_h200_shows_is_what_our_table_says(site: Path) -> None:
    table = site_table.rows(
        all_seen(device=DEVICE | {"memory_bytes": 141 * GIB}), found_by="rad calibrate --deep, today"
    )
    shipped = {
        (rule.library, rule.name): rule.value
        for rule in numbers.read_table(TABLE)
        if rule.gpu in ("h200", "*")
    }
    assert {(rule.library, rule.name): rule.value for rule in table.rules} == {
        (rule.library, rule.name): shipped[rule.library, rule.name] for rule in table.rules
    }
    assert {rule.library for rule in table.rules} == LIBRARIES
    assert {(rule.gpu, rule.status, rule.found_by) for rule in table.rules} == {
        ("h200", Status.MEASURED, "rad calibrate --deep, today")
    }
    site.write_text(site_table.as_text(table.rules))
    assert numbers.read_site_table(site) == table.rules


def test_a_new_gpu_of_a_site_is_known_by_its_product(site: Path) -> None:
    values = all_seen(
        device=DEVICE
        | {"gpu": "NVIDIA RTX A6000", "memory_bytes": 48 * GIB, "multiprocessors": 84, "threads": 1536}
    )
    site.write_text(
        site_table.as_text(
            site_table.rows(values | {"conv": {"base_bytes": 500 * MIB}}, found_by="here").rules
        )
    )
    read_again()
    found = gpus.gpu_named("NVIDIA RTX A6000")
    assert (found.name, found.conv_base_bytes, found.memory_bytes) == ("rtx a6000", 500 * MIB, 48 * GIB)
    assert found.measured
    # Profiles know no GPU: they follow the site's.
    assert numbers.of("device")["multiprocessors"] == numbers.of("cudnn")["part_blocks_fp32"] == 84
    assert numbers.of("cudnn", "h200") == CUDNN


def test_rows_of_another_gpu_stay(site: Path) -> None:
    first = site_table.rows(all_seen(), found_by="first").rules
    second = site_table.rows(all_seen(device=DEVICE | {"gpu": "NVIDIA L4"}), found_by="second").rules
    again = site_table.rows(all_seen(), found_by="again").rules
    kept = site_table.merged(site_table.merged(first, second), again)
    assert len(kept) == len(first) + len(second)
    assert {rule.found_by for rule in kept} == {"second", "again"}


@pytest.mark.parametrize("part", [part.name for part in PARTS[1:]])
@pytest.mark.parametrize(
    "values", [None, {}, {"base_bytes": -1, "segments": [], "reserves": [["lstm", 1, 0, 0, 0]]}]
)
def test_a_part_that_shows_nothing_costs_its_own_rows_alone(part: str, values: Any) -> None:
    if part.startswith("convolutions"):
        part = "convolutions-0"
    seen = all_seen()
    seen.pop(part) if values is None else seen.update({part: values})
    table = site_table.rows(seen, found_by="here")
    assert table.notes
    assert LIBRARIES - {rule.library for rule in table.rules} <= {REPORTED_BY.get(part, part)}


def test_without_the_device_nothing_has_a_name() -> None:
    with pytest.raises(SetupError, match="nothing can be fitted"):
        site_table.rows({}, found_by="here")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: the columns must be"),
        ("a,b\n", ":1: the columns must be"),
        (f"{','.join(numbers.COLUMNS)}\ncudnn,9\n", ":2: a row has 9 fields"),
        (f"{','.join(numbers.COLUMNS)}\ncudnn,9,h200,tile,much,channels,measured,x,x\n", ":2: a row has"),
        (f"{','.join(numbers.COLUMNS)}\ncudnn,9,h200,tile,128,channels,guessed,x,x\n", "status one of"),
        (f"{','.join(numbers.COLUMNS)}\ncudnn,9,h200,tiel,128,channels,measured,x,x\n", "no rule 'tiel'"),
        (f"{','.join(numbers.COLUMNS)}\ncudnn,9,h200,tile,0,channels,measured,x,x\n", "above 0"),
        ("\0", ""),
    ],
)
def test_a_broken_table_changes_nothing_and_is_said(
    site: Path, text: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.write_text(text)
    assert numbers.of("cudnn") == CUDNN
    (record,) = caplog.records
    assert says in record.getMessage() and str(site) in record.getMessage()


def test_a_folder_or_bytes_in_its_place_change_nothing(site: Path) -> None:
    site.write_bytes(b"\xff\xfe")
    assert numbers.of("cudnn") == CUDNN
    numbers.site_rules.cache_clear()
    site.unlink()
    site.mkdir()
    assert numbers.rules()

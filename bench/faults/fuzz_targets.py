"""Targets of bench/faults/fuzz.py: each makes an input and judges the result.

A judge returns a word for the outcome; whatever it raises is a fault. Documented errors are outcomes, if they are one
line of bearable length.
"""

from __future__ import annotations

import atexit
import json
import random
import shutil
import string
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gpumemnet.directives.parse import parse_comment, parse_script
from gpumemnet.errors import GpuMemNetError
from gpumemnet.estimators.registry import estimate
from gpumemnet.names import Family, Optimizer, Precision, Source
from gpumemnet.profile.record import MAX_TEXT, ModelProfile
from gpumemnet.tracing.saved.choose import choose
from gpumemnet.tracing.saved.record import MAX_CHARACTERS, SavedProfile
from gpumemnet.training import TrainingSetup
from slurm_plugin.core.booking.gres_text import count_of, others, parse_gres
from slurm_plugin.core.clock import SystemClock
from slurm_plugin.core.comments import signed_comment
from slurm_plugin.core.comments.admin_comment import read_note
from slurm_plugin.core.errors import DeviceError, LedgerError, RadError, SlurmError, WireError
from slurm_plugin.core.files.atomic import replace_file
from slurm_plugin.core.ledger.codec import decode, encode
from slurm_plugin.core.ledger.job_file import JobFile
from slurm_plugin.core.ledger.ledger import Ledger
from slurm_plugin.core.ledger.store import LedgerStore
from slurm_plugin.core.records.node import Allocation
from slurm_plugin.core.records.submission import Booking
from slurm_plugin.core.text import one_line as short
from slurm_plugin.core.units import MIB
from slurm_plugin.monitor.gpus.dcgm import parse_discovery, parse_dmon
from slurm_plugin.monitor.gpus.nvml import NvmlTelemetry
from slurm_plugin.radd.protocol import lines
from slurm_plugin.radd.requeued.position_keeper import PositionKeeper
from slurm_plugin.radd.requeued.priority_boosts import PriorityBooster
from slurm_plugin.radd.requeued.release import Releaser
from slurm_plugin.radd.service import Service
from slurm_plugin.radd.submission.reload import Reloader
from slurm_plugin.slurm.files import conf_lines
from slurm_plugin.slurm.node.hook_env import HookJob
from slurm_plugin.slurm.queries import accounting, printed
from slurm_plugin.slurm.queries.columns import Columns, records
from slurm_plugin.slurm.versions import parse_version

TESTS = Path(__file__).resolve().parents[2] / "tests"
DATA = TESTS / "data"
LONGEST_ERROR = 1000

NUMBERS = (
    "0",
    "-1",
    "1",
    "7",
    "4294967294",
    "9223372036854775808",
    "1e99",
    "NaN",
    "-0",
    "",
    "1e309",
    "3.5",
    "²",
    "٣",
)
CHARACTERS = "[](),:-= /\\|{}\"'0123456789xXKMGT.#%;\t\r\n\x00\x1b\x7fé\u2028\u202e\udc80"


class FuzzTarget(NamedTuple):
    """A reader under test."""

    make: Callable[[random.Random], Any]
    judge: Callable[[Any, random.Random], str]


def mutate(text: str, rng: random.Random, *, others: tuple[str, ...] = ()) -> str:
    """Return a text with one to eight things done to it."""
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        end = min(end, at + rng.choice((1, 3, 20, 200)))
        kind = rng.randrange(8)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + text[at:end] * rng.choice((2, 3, 50)) + text[end:]
        elif kind == 2:
            text = text[:at]
        elif kind == 3:
            text = text[:at] + rng.choice(NUMBERS) + text[end:]
        elif kind == 4 and others:
            donor = rng.choice(others)
            start = rng.randrange(len(donor) + 1)
            text = text[:at] + donor[start : start + rng.randrange(1, 60)] + text[end:]
        elif kind == 5:
            text = text[:at] + text[end:] + text[at:end]
        else:
            piece = rng.choice(CHARACTERS) * rng.choice((1, 1, 1, 2, 300))
            text = text[:at] + piece + text[at + rng.randrange(3) :]
    return text[:200_000]


def mutate_tree(tree: Any, rng: random.Random) -> Any:
    """Return a JSON tree with one to three of its values replaced, taken away, or joined by others."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(tree))
        holder, key = rng.choice(places)
        kind = rng.randrange(4)
        if kind == 0:
            del holder[key]
            if not list(_places(tree)):
                return tree
        elif kind == 1:
            other, name = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[name]))
        elif kind == 2 and isinstance(holder, list):
            holder.append(json.loads(json.dumps(holder[key])))
        else:
            holder[key] = json.loads(
                json.dumps(rng.choice(_VALUES))
            )  # a value of its own: it may be broken next
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _places(tree[key])


def one_line(error: Exception) -> str:
    """Return the outcome of a documented error.

    Raises:
        AssertionError: It is no line that a person can read.
    """
    text = str(error)
    assert "\n" not in text and "\x1b" not in text, f"an error of more than a line: {text[:100]!r}"
    assert len(text) <= LONGEST_ERROR, f"an error of {len(text)} characters"
    return f"error: {type(error).__name__}"


# --- lines on radd's socket ---------------------------------------------------------------------------------------


class _NoSlurm:
    def __getattr__(self, name: str) -> Any:
        raise SlurmError("no Slurm here")


def _service() -> Service:
    folder = Path(tempfile.mkdtemp(prefix="rad-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "key").write_bytes(b"k" * 32)
    (folder / "key").chmod(0o600)
    names = "".join(f'{name} = "{folder}"\n' for name in ("run", "state", "log"))
    (folder / "rad.toml").write_text(
        f'default_partition = "gpu"\n[paths]\n{names}key = "{folder}/key"\nsocket = "{folder}/s"\n'
        "[partition.gpu]\ncollocate = true\ngpu_memory_mib = 40360\nshards_per_gpu = 39\n"
    )
    slurm: Any = _NoSlurm()
    clock = SystemClock()
    in_force = Reloader(folder / "rad.toml", slurm, clock)
    booster = PriorityBooster(folder / "boosts.json", slurm, clock, lambda: in_force.config)
    keeper = PositionKeeper(slurm, clock, booster, lambda: in_force.config)
    return Service(in_force, Releaser(slurm, clock, booster, keeper, key=lambda: bytes(32)), clock)


_MESSAGES: tuple[dict[str, Any], ...] = (
    {"v": 1, "op": "ping"},
    {
        "v": 1,
        "op": "submit",
        "user_id": 1000,
        "partition": "gpu",
        "tres_per_job": "gpu:1",
        "comment": "mine rad:memory=12G",
        "script": "#!/bin/sh\n#RAD model=a.txt batch_size=8\ntrue\n",
        "min_nodes": 1,
        "num_tasks": 4294967294,
        "cpus_per_tres": "gres:gpu:4",
        "mem_per_tres": "gres:gpu:1000",
    },
    {"v": 1, "op": "submit", "user_id": 1000, "gres": "gres:gpu:1,nvme:5", "comment": "rad:policy=exclusive"},
    {"v": 1, "op": "submit", "user_id": 1000, "gres": "gres:shard:3", "tres_per_task": "cpu=2,gres/gpu=1"},
    {"v": 1, "op": "change", "user_id": 1000, "gres": "gres:shard:30", "comment": "rad:memory=1G"},
    {
        "v": 1,
        "op": "modify",
        "job_id": 7,
        "user_id": 1000,
        "comment": "x",
        "admin_comment": "rad: recovered start_in_s=0 - x",
    },
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**64,
    1e300,
    "",
    "gpu",
    "gpu:1",
    "shard:99999999999999999999",
    "gres:gpu:a100:1,gpu:2",
    "\x00" * 300,
    "\x1b[2J" * 50,
    "x" * 70_000,
    [],
    {},
    [[[[]]]],
    {"gpu": 1},
    "rad:memory=1e9T",
    "rad:" + "a=b," * 500,
    "²",
)


def _wire_make(rng: random.Random) -> bytes:
    message = dict(rng.choice(_MESSAGES))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        key = rng.choice((*message, *rng.choice(_MESSAGES), "x" * rng.randrange(3)))
        value = message.get(key)
        if isinstance(value, str) and rng.random() < 0.6:
            message[key] = mutate(value, rng)
        elif rng.random() < 0.2:
            message.pop(key, None)
        else:
            message[key] = rng.choice(_VALUES)
    text = json.dumps(message, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.3:
        text = mutate(text, rng)
    line = text.encode(errors="surrogatepass" if rng.random() < 0.5 else "replace")
    return line[: lines.REQUEST_LIMIT]


def _wire() -> FuzzTarget:
    service = _service()

    def judge(line: bytes, rng: random.Random) -> str:
        try:
            message = lines.message_of(line)
            reply = service.handle(message)
            encoded = lines.encode(reply)
        except RadError as exc:
            reported = short(str(exc), lines.LONGEST_REFUSAL)  # as the server answers
            assert reported.isprintable() and len(reported) <= lines.LONGEST_REFUSAL
            return f"error: {type(exc).__name__}"
        assert encoded.count(b"\n") == 1, "more than a line"
        reply = json.loads(encoded.decode(errors="surrogateescape"))
        for words in [*reply.get("say", ()), reply.get("refuse") or ""]:
            assert len(words) <= LONGEST_ERROR and "\x1b" not in words, "words for the user"
        return f"answer to {str(message.get('op'))[:8]}"

    return FuzzTarget(_wire_make, judge)


# --- what users write ---------------------------------------------------------------------------------------------

_SCRIPTS = (
    "#!/bin/bash\n#SBATCH --gpus=1\n#RAD model=resnet50.txt batch_size=128 optimizer=adam precision=amp\npython t.py\n",
    "#!/bin/sh\r\n#RAD model='my model.txt'\r\n#RAD gpus=2 policy=exclusive\r\ntrue\r\n",
    "\ufeff#!/bin/sh\n#RAD memory=12G retry=no\n#RAD gradient_checkpointing=yes seq_len=512\ntrue\n",
)
_COMMENTS = (
    "mine rad:memory=12G",
    "rad:model=a.txt,batch_size=8,optimizer=sgd",
    "rad:policy=collocate,retry=no,memory=900M",
)


def _directives() -> FuzzTarget:
    def make(rng: random.Random) -> tuple[bool, str]:
        script = rng.random() < 0.6
        corpus = _SCRIPTS if script else _COMMENTS
        return script, mutate(rng.choice(corpus), rng, others=(*_SCRIPTS, *_COMMENTS))

    def judge(made: tuple[bool, str], rng: random.Random) -> str:
        script, text = made
        try:
            found = parse_script(text, "job.sh") if script else parse_comment(text)
        except GpuMemNetError as exc:
            return one_line(exc)
        if found is None:
            return "none"
        assert found.memory_bytes is None or 0 < found.memory_bytes < 1 << 62
        assert found.gpus is None or found.gpus > 0
        return "directives"

    return FuzzTarget(make, judge)


def _saved() -> FuzzTarget:
    numbers = dict.fromkeys(ModelProfile._fields, 0)
    profiles = tuple(
        ModelProfile(
            **numbers  # type: ignore[arg-type]
            | {
                "family": Family.CNN,
                "source": Source.TRACE,
                "optimizer": Optimizer.ADAM,
                "precision": Precision.AMP,
            }
            | {"gpus": 1, "batch_size": size, "reserved_bytes": size * MIB, "parameters": 7}
        )
        for size in (16, 32, 64)
    )
    about = {"inputs": ("32x3x224x224:float32",), "versions": {"torch": "2.13.0"}, "warnings": ("assumed",)}
    whole = SavedProfile(
        profiles=profiles, batch_size=32, model="Net", command=("python", "train.py"), **about
    ).to_text()

    def make(rng: random.Random) -> tuple[str, int | None]:
        text = json.dumps(mutate_tree(json.loads(whole), rng)) if rng.random() < 0.6 else mutate(whole, rng)
        return text, rng.choice((None, 1, 17, 32, 64, 65, 1 << 30))

    def judge(made: tuple[str, int | None], rng: random.Random) -> str:
        text, batch_size = made
        try:
            saved = SavedProfile.from_text(text, path="m.rad")
            assert len(saved.to_text()) <= 2 * MAX_CHARACTERS, "it grew"
            profile, _ = choose(saved, TrainingSetup(batch_size=batch_size), path="m.rad")
        except GpuMemNetError as exc:
            return one_line(exc)
        assert len(profile.to_text()) <= MAX_TEXT, "too long for a comment"
        found = estimate(ModelProfile.from_text(profile.to_text()))
        assert 0 < found.estimate_bytes <= found.upper_bytes
        return "profile"

    return FuzzTarget(make, judge)


_KEY = b"k" * 32


def _bookings() -> FuzzTarget:
    def make(rng: random.Random) -> tuple[str, Booking, str]:
        booking = Booking(
            kind=rng.choice(("shared", "whole")),
            gpus=rng.choice((1, 1, 2, 8)),
            memory_bytes=rng.choice((None, rng.randrange(1, 200_000) * MIB)),
            estimate_bytes=rng.choice((None, rng.randrange(1, 200_000) * MIB)),
            recoveries=rng.randrange(3),
            retry=rng.random() < 0.7,
            profile_key=rng.choice((None, "".join(rng.choices("0123456789abcdef", k=16)))),
        )
        words = "".join(rng.choices(string.printable + "é\u202e", k=rng.choice((0, 5, 900, 2000))))
        comment = signed_comment.with_signed_booking(
            words, signed_comment.signed_booking(booking, user_id=1000, key=_KEY)
        )
        return comment, booking, mutate(comment, rng, others=(comment,))

    def judge(made: tuple[str, Booking, str], rng: random.Random) -> str:
        comment, booking, spoilt = made
        assert len(comment.encode()) < signed_comment.COMMENT_LIMIT
        assert signed_comment.read_signed_booking(comment, user_id=1000, key=_KEY) == booking, (
            "not what was signed"
        )
        assert signed_comment.read_signed_booking(comment, user_id=1001, key=_KEY) is None, "another user's"
        found = signed_comment.read_signed_booking(spoilt, user_id=1000, key=_KEY)
        assert found is None or found == booking, f"forged: {found}"
        again = signed_comment.with_signed_booking(
            spoilt, signed_comment.signed_booking(booking, user_id=1000, key=_KEY)
        )
        assert len(again.encode(errors="surrogateescape")) < signed_comment.COMMENT_LIMIT, (
            "too long for Slurm"
        )
        assert signed_comment.read_signed_booking(again, user_id=1000, key=_KEY) == booking, (
            "lost next to the user's words"
        )
        signed_comment.profile_in(spoilt), signed_comment.user_words(spoilt)
        return "still good" if found else "refused"

    return FuzzTarget(make, judge)


# --- files ----------------------------------------------------------------------------------------------------------

_BOOT = "11111111-2222-4333-8444-555555555555"
_FAST = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())


def _ledger() -> FuzzTarget:
    folder = Path(tempfile.mkdtemp(prefix="rad-fuzz-", dir=_FAST))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = LedgerStore(folder, clock=SystemClock(), boot_id=_BOOT)
    allocations = [
        Allocation(
            job_id=number,
            user_id=1000,
            kind="whole" if number == 3 else "shared",
            gpus=(f"GPU-{number % 4}",),
            gpu_indices=(number % 4,),
            booked_bytes=number << 30,
            created_s=1e9 + number,
        )
        for number in range(1, 6)
    ]
    ledger = store.read().ledger
    for one in allocations:
        ledger = ledger.reserve(one, {f"GPU-{number}": 1 << 40 for number in range(4)})
    store.write(ledger)
    JobFile(folder, 3).place({"RAD_KIND": "whole"}, allocations[2], boot_id=_BOOT)
    names = ("ledger", "placed/3")
    texts = (
        encode(ledger, boot_id=_BOOT).decode("latin-1"),
        (folder / names[1]).read_bytes().decode("latin-1"),
    )
    whole = (folder / names[0]).read_bytes()

    def make(rng: random.Random) -> tuple[str, bytes]:
        which = rng.randrange(2)
        if rng.random() < 0.7 and which == 0:
            text = json.dumps(mutate_tree(json.loads(texts[which]), rng))
        else:
            text = mutate(texts[which], rng, others=texts)
        return names[which], text.encode("latin-1", errors="replace")

    def judge(made: tuple[str, bytes], rng: random.Random) -> str:
        name, data = made
        if name == "placed/3":
            replace_file(folder / name, data)
            file = JobFile(folder, 3).read(boot_id=_BOOT)
            assert file.allocation is None or file.allocation.job_id == 3
            JobFile(folder, 3).variables()
            return "nothing" if file.allocation is None else "read"
        damaged = bytearray(whole)
        at = rng.randrange(len(texts[0]) + 60)
        damaged[at : at + len(data)] = data[: len(damaged) - at]
        (folder / "ledger").write_bytes(damaged)
        assert LedgerStore(folder, clock=SystemClock(), boot_id=_BOOT).read().ledger in (ledger, Ledger())
        try:
            found = decode(data, boot_id=_BOOT)
        except LedgerError as exc:
            one_line(exc)
            return "refused"
        if found is None:
            return "another boot"
        ids = [one.job_id for one in found.allocations]
        assert len(set(ids)) == len(ids)
        for one in found.allocations:
            assert one.booked_bytes >= 0, "a negative booking would free memory that is not there"
            assert (
                one.restart >= 0
                and one.gpus
                and all(isinstance(gpu_index, int) for gpu_index in one.gpu_indices)
            )
            assert isinstance(one.created_s, float | int)
        try:
            found.reserve(allocations[0], {"GPU-1": 1 << 40})
        except LedgerError as exc:
            one_line(exc)
        found.release(3, restart=0)
        return "read"

    return FuzzTarget(make, judge)


# --- what other programs say ----------------------------------------------------------------------------------------


def _recorded(pattern: str) -> tuple[str, ...]:
    return tuple(path.read_text(errors="replace") for path in sorted(DATA.glob(pattern)))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _hook(text: str) -> HookJob:
    pairs = dict(part.partition("=")[::2] for part in text.split("\x01"))
    return HookJob.from_env(pairs)


def _conf(text: str) -> object:
    lines = text.splitlines()
    return conf_lines.settings_in(lines), [conf_lines.pairs_of(line) for line in lines]


def _gres(text: str) -> object:
    items = parse_gres(text)
    assert all(item.count >= 0 for item in items), "a negative count"
    count_of(items, "gpu"), others(text, keep_prefix=True), others(text, keep_prefix=False)
    return items


_HOOK_ENV = "\x01".join(
    f"{name}={value}"
    for name, value in {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_UID": "1000",
        "SLURM_JOB_GID": "1000",
        "SLURM_JOB_GPUS": "0,2-3",
        "SLURM_JOB_PARTITION": "gpu",
        "SLURM_JOB_COMMENT": "x rad2:shared:gpus=1:mem=1:ab",
        "SLURM_JOB_RESTART_COUNT": "1",
        "SLURM_JOB_EXIT_CODE": "256",
        "SLURMD_NODENAME": "n0",
    }.items()
)
_PLENTY = 100_000


def _slurm() -> FuzzTarget:
    def table(columns: Columns) -> Callable[[str], object]:
        return lambda text: records(_bytes(text), columns, printed.job_view)

    readers: tuple[tuple[tuple[str, ...], Callable[[str], object]], ...] = (
        (_recorded("squeue_jobs.*"), table(printed.JOB_COLUMNS)),
        (_recorded("squeue_job_with_comment.*"), table(printed.ONE_JOB_COLUMNS)),
        (_recorded("sinfo_nodes.*"), lambda text: printed.parse_nodes(_bytes(text))),
        (_recorded("scontrol_version.*"), parse_version),
        (("SlurmctldPort = 6817\nAuthInfo = socket=/x,cred_expire=15\nHZ=\n",), printed.parse_config),
        (_recorded("sacct_ended.*"), lambda text: accounting.parse_ended(_bytes(text))),
        (_recorded("sacct_comments.*"), lambda text: accounting.parse_comments(_bytes(text))),
        (("gres:gpu:a100:2,shard:3,nvme:5", "gres/gpu=1,cpu=4", "gpu:1g.10gb:1(S:0-1)"), _gres),
        (("rad: recovered peak_mib=13210 start_in_s=0 - torch.OutOfMemoryError",), read_note),
        (("NodeName=n[08-10] Gres=gpu:4,shard:160 File=/dev/nvidia[0-3,7]\nGresTypes=gpu,shard\n",), _conf),
        (("/dev/nvidia[0-3,7]", "n[08-10],one", "a[1-2]b[3-4]"), conf_lines.expand),
        ((_HOOK_ENV,), _hook),
    )

    def make(rng: random.Random) -> tuple[int, str]:
        which = rng.randrange(len(readers))
        texts = readers[which][0]
        return which, mutate(rng.choice(texts), rng, others=texts)

    def judge(made: tuple[int, str], rng: random.Random) -> str:
        which, text = made
        text = text.encode(errors="replace").decode()  # halves of surrogate pairs stand for no bytes
        try:
            found = readers[which][1](text)
        except SlurmError as exc:
            return one_line(exc)
        except (ValueError, WireError) as exc:  # what parse_gres documents
            return one_line(exc)
        if isinstance(found, tuple | list | dict):
            assert len(found) <= _PLENTY, f"{len(found)} records of {len(text)} characters"
        return "read"

    return FuzzTarget(make, judge)


def _nvml() -> FuzzTarget:
    sys.path.insert(0, str(TESTS))
    from fake_nvml import FakeGpu, FakeNvml, NVMLError

    values = (0, 1, 10**9, 2**63, 2**64 - 1, 140 << 30)

    class Moody(FakeNvml):
        """Fails any call with any code, and returns any number."""

        def __init__(self, *devices: FakeGpu, rng: random.Random, share: float, **more: bool) -> None:
            super().__init__(*devices, **more)
            self._rng, self._share = rng, share

        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if not name.startswith("nvml") or not callable(found) or name == "nvmlShutdown":
                return found
            rng, share = self._rng, self._share

            def call(*arguments: Any) -> Any:
                if rng.random() < share:
                    raise NVMLError(rng.choice((1, 2, 3, 4, 6, 9, 10, 12, 13, 15, 16, 25, 999)))
                return found(*arguments)

            return call

    class NoWait:
        def now_s(self) -> float:
            return 1e9

        def monotonic_s(self) -> float:
            return 0.0

        def sleep(self, duration_s: float) -> None:
            return None

    def gpu(rng: random.Random, number: int) -> FakeGpu:
        return FakeGpu(
            uuid=f"GPU-{number}",
            minor=rng.choice((number, None, 255)),
            name=rng.choice(("NVIDIA H200", b"NVIDIA A100", "")),
            total=rng.choice(values),
            used=rng.choice(values),
            reserved=rng.choice(values),
            processes=tuple(
                (rng.choice((1, 2**22, 0)), rng.choice((None, *values))) for _ in range(rng.randrange(4))
            ),
            gpm=rng.choice(
                (
                    None,
                    {},
                    {n: rng.choice((0.0, 50.0, -1.0, 1e9, float("nan"))) for n in (1, 2, 3, 5, 10, 20)},
                )
            ),
            utilisation=rng.choice((None, 0, 100, 4294967295)),
            mig=rng.choice((None, 0, 1)),
            energy_mj=rng.choice((None, *values)),
            ecc=rng.choice((None, *values)),
            recovery=rng.choice((None, 0, 1, 4)),
            lost_at_open=rng.random() < 0.1,
            lost=rng.random() < 0.1,
            xids=[rng.choice((13, 31, 79, 0, 2**32 - 1)) for _ in range(rng.randrange(3))],
        )

    def make(rng: random.Random) -> Any:
        flags = {name: rng.random() < 0.8 for name in ("memory_v2", "processes_v3", "events")}
        return Moody(
            *(gpu(rng, number) for number in range(rng.randrange(5))),
            rng=rng,
            share=rng.choice((0.0, 0.02, 0.3)),
            **flags,
        )

    def judge(library: Any, rng: random.Random) -> str:
        telemetry = NvmlTelemetry(library, clock=NoWait())
        try:
            readings = [one for _ in range(2) for one in telemetry.read()]
        except DeviceError as exc:
            return one_line(exc)
        finally:
            telemetry.close()
        for one in readings:
            assert one.free_bytes >= 0, "negative free memory"
            assert one.smact is None or 0.0 <= one.smact <= 1.0, f"SMACT {one.smact}"
            assert one.usable_bytes >= 0, "negative usable memory"
        return "readings" if readings else "no GPU"

    return FuzzTarget(make, judge)


def _dcgm() -> FuzzTarget:
    discovery, samples = _recorded("dcgmi_discovery*"), _recorded("dcgmi_dmon*")

    def make(rng: random.Random) -> tuple[bool, str]:
        which = rng.random() < 0.5
        return which, mutate(rng.choice(discovery if which else samples), rng, others=(*discovery, *samples))

    def judge(made: tuple[bool, str], rng: random.Random) -> str:
        which, text = made
        if which:
            found = parse_discovery(text)
            assert all(uuid.startswith("GPU-") and "\n" not in uuid for uuid in found.values())
            return "gpus" if found else "none"
        reported = parse_dmon(text)
        shares = [
            v for one in reported.values() for v in (one.smact, one.graphics, one.smocc, one.tensor, one.dram)
        ]
        assert all(share is None or 0.0 <= share <= 1.0 for share in shares)
        return "samples" if reported else "none"

    return FuzzTarget(make, judge)


TARGETS: dict[str, Callable[[], FuzzTarget]] = {
    "wire": _wire,
    "directives": _directives,
    "saved": _saved,
    "bookings": _bookings,
    "ledger": _ledger,
    "slurm": _slurm,
    "nvml": _nvml,
    "dcgm": _dcgm,
}

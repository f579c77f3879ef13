"""How a job ended, for any exit status, output and verdict of rad-monitor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from epilog.evidence import EndEvidence
from epilog.outcome import judge
from slurm_plugin.core.records.node import Diagnosis, Outcome
from slurm_plugin.core.recovery.classify import Ending, classify
from slurm_plugin.core.recovery.oom_patterns import load_patterns
from slurm_plugin.core.units import GIB

OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
endings = st.builds(
    Ending,
    exit_status=st.sampled_from((None, 0, 1 << 8, 9, 15)),
    derived_exit=st.sampled_from((0, 1)),
    peak_bytes=st.sampled_from((None, GIB, 4 * GIB)),
    limit_bytes=st.sampled_from((None, 4 * GIB)),
    user_id=st.just(1000),
    job_id=st.just(7),
    requeued=st.booleans(),
)
tails = st.sampled_from(((), ("epoch 1\n",), (OOM,), ("Killed\n", OOM)))
verdicts = st.builds(
    Diagnosis,
    kind=st.sampled_from(("overrun", "victim")),
    culprit=st.sampled_from((None, 8)),
    culprit_user_id=st.sampled_from((None, 1000, 1001)),
    rerun=st.booleans(),
    server_ends=st.integers(0, 2),
    detail=st.just("because"),
)


def evidence_of(ending: Ending, output: tuple[str, ...], diagnosis: Diagnosis | None) -> EndEvidence:
    return EndEvidence(ending=ending, shown=classify(ending, output, load_patterns()), diagnosis=diagnosis)


def failed(ending: Ending) -> bool:
    return bool(ending.exit_status or ending.derived_exit)


@given(endings, tails)
def test_without_a_verdict_exit_status_and_output_decide(ending: Ending, output: tuple[str, ...]) -> None:
    evidence = evidence_of(ending, output, None)
    outcome = judge(evidence)
    assert outcome == evidence.shown
    assert (outcome.kind in ("ok", "cancelled")) or failed(ending)


@given(endings, tails, verdicts)
def test_a_verdict_explains_a_failure_unless_the_job_was_cancelled(
    ending: Ending, output: tuple[str, ...], diagnosis: Diagnosis
) -> None:
    evidence = evidence_of(ending, output, diagnosis)
    outcome: Outcome = judge(evidence)
    if not failed(ending):
        assert outcome.kind in ("ok", "cancelled")
    elif diagnosis.kind == "overrun":
        assert outcome.kind == "overrun" and outcome.rerun == diagnosis.rerun
    else:
        cancelled = ending.requeued or (ending.exit_status or 0) & 0x7F in (9, 15)
        assert outcome.kind == ("cancelled" if cancelled else "victim")
    assert outcome.attempted_bytes == evidence.shown.attempted_bytes
    assert (outcome.peak_bytes, outcome.server_ends) == (ending.peak_bytes, diagnosis.server_ends)


@given(endings, tails, verdicts)
def test_only_another_users_job_makes_a_victim_certain(
    ending: Ending, output: tuple[str, ...], diagnosis: Diagnosis
) -> None:
    outcome = judge(evidence_of(ending, output, diagnosis))
    if outcome.kind in ("victim", "overrun"):
        assert outcome.corroborated == (diagnosis.culprit_user_id == 1001)

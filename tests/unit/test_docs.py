"""The documents name nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("*/README.md")])

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^\s*(?:[A-Z_]+=\S+ )*(?:nice )?(?:python3?|make) .*$", re.MULTILINE)
SCRIPT = re.compile(r"\b(?:bench|examples|lab|docker)/[\w/]+\.(?:py|sh)\b")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_links_lead_to_files_and_commands_name_what_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [
        link.partition("#")[0]
        for link in LINK.findall(text)
        if "://" not in link and not link.startswith("#")
    ]
    missing = [link for link in links if not (document.parent / link).exists()]
    scripts = {name for command in COMMAND.findall(text) for name in SCRIPT.findall(command)}
    missing += sorted(name for name in scripts if not (CHECKOUT / name).exists())
    assert not missing, f"{document.name} names {', '.join(missing)}"


def test_make_targets_that_documents_name_exist() -> None:
    targets = set(TARGET.findall((CHECKOUT / "Makefile").read_text()))
    named = {
        target
        for document in DOCUMENTS
        for target in re.findall(r"`make ([a-z][a-z-]*)", document.read_text(encoding="utf-8"))
    }
    assert named <= targets, f"no such target: {', '.join(sorted(named - targets))}"

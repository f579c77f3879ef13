"""The documents name nothing that is not there."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
from documents import archived

from gpumemnet.cli.rad_estimate import command as rad_estimate
from slurm_plugin.admin.cli import main as rad
from slurm_plugin.core.config.load import Features
from slurm_plugin.radd.__main__ import main as radd

CHECKOUT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "*/README.md",
        "slurm_plugin/*/README.md",
        "gpumemnet/*/README.md",
    )
    for path in CHECKOUT.glob(pattern)
)

MANUAL = (
    *(CHECKOUT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(path for path in (CHECKOUT / "docs").rglob("*.md") if path.parent.name != "measurements"),
    CHECKOUT / "gres_conf" / "README.md",
)
"""The pages that people read from top to bottom; reports of measurements are no part of it."""
MOST_WORDS = {"README.md": 600, "ARCHITECTURE.md": 1800}
"""Of a page; of any other 1500, as it answers one question."""
MOST_OF_ALL = 30_000

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^\s*(?:[A-Z_]+=\S+ )*(?:nice )?(?:python3?|make) .*$", re.MULTILINE)
SCRIPT = re.compile(r"\b(?:bench|examples|lab|docker)/[\w/]+\.(?:py|sh)\b")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


ARCHIVED = archived()
"""Programs of finished measurements: the reports name them, and git has them."""


OF_OTHERS = {f"examples/{name}.py" for name in ("demo_functional", "gcn", "ode_demo")}
"""Public programs that were measured or traced."""


def may_be_gone(document: Path) -> set[str]:
    """Return the programs that a document may name although they are not here."""
    return ARCHIVED | OF_OTHERS if document.parent.name == "measurements" else set()


def test_a_block_inside_a_list_is_indented_by_four() -> None:
    """With less the site ends the list there, and numbers what follows from 1; GitHub takes both."""
    blocks = {page: re.findall(r"(?m)^ {1,3}```.*$", page.read_text(encoding="utf-8")) for page in DOCUMENTS}
    assert {page: found for page, found in blocks.items() if found} == {}


def test_each_page_begins_with_its_title() -> None:
    folders = [
        page for top in ("bench", "docker", "distributions") for page in (CHECKOUT / top).rglob("README.md")
    ]
    pages = {page for page in (*DOCUMENTS, *folders, *FOLDER_PAGES) if not page.parent.name.startswith(".")}
    assert [page for page in pages if not page.read_text(encoding="utf-8").startswith("# ")] == []


def test_the_manual_is_short() -> None:
    words = {
        str(page.relative_to(CHECKOUT)): len(page.read_text(encoding="utf-8").split()) for page in MANUAL
    }
    assert {name: count for name, count in words.items() if count > MOST_WORDS.get(name, 1500)} == {}
    assert sum(words.values()) <= MOST_OF_ALL


ELSEWHERE = {
    "docs.nvidia.com",
    "github.com",
    "keepachangelog.com",
    "princetonuniversity.github.io",
    "semver.org",
    "slurm.schedmd.com",
}
"""Hosts that the documents send a reader to. No test calls them: the author of a link opens it once."""


def test_links_that_lead_elsewhere_are_few_and_well_formed() -> None:
    found = set()
    for document in DOCUMENTS:
        if document.parent.name.startswith("."):  # pytest's cache has a README.md
            continue
        found.update(re.findall(r"https?://[^\s)>\]\"'`|]+", document.read_text(encoding="utf-8")))
    parts = {link: urlsplit(link) for link in found if "://localhost" not in link}
    assert {part.hostname for part in parts.values()} - ELSEWHERE == set()
    assert not [link for link, part in parts.items() if part.scheme != "https" or not part.path]


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
    missing += sorted(name for name in scripts - may_be_gone(document) if not (CHECKOUT / name).exists())
    assert not missing, f"{document.name} names {', '.join(missing)}"


TYPED_BENCH = re.compile(
    r"(?P<env>(?:[A-Z_]+=\S+ )*)(?:nice )?(?P<python>[\w./]*python3?)\s(?P<script>bench/[\w/]+\.py)"
)
INSTALLED = {"slurm_plugin", "gpumemnet", "prolog", "epilog"}
OF_THE_CHECKOUT = {"lab", "tools", "bench", "tests"}


def test_a_measurement_finds_its_modules_as_it_is_typed() -> None:
    """`python3` lacks RAD; an environment has what is installed; PYTHONPATH or the program adds the rest."""
    wrong = []
    for source in (*DOCUMENTS, *CHECKOUT.glob("bench/**/*.py")):
        for typed in TYPED_BENCH.finditer(source.read_text(encoding="utf-8")):
            if typed["script"] in may_be_gone(source):
                continue
            program = (CHECKOUT / typed["script"]).read_text(encoding="utf-8")
            if "sys.path" in program or "PYTHONPATH" in typed["env"]:
                continue
            lacks = OF_THE_CHECKOUT | (INSTALLED if typed["python"] == "python3" else set())
            if needed := lacks & set(imported_by(program)):
                wrong.append(
                    f"{source.relative_to(CHECKOUT)}: {typed[0]!r} lacks {', '.join(sorted(needed))}"
                )
    assert not wrong, "\n".join(wrong)


def test_archived_programs_are_gone() -> None:
    assert len(ARCHIVED) > 20 and not [name for name in ARCHIVED if (CHECKOUT / name).exists()]


def imported_by(program: str) -> Iterator[str]:
    """Yield the top-level packages that a program imports."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


OUR_FILE = re.compile(
    r"(?<![\w/.-])(?:slurm_plugin|gpumemnet|prolog|epilog|tests|bench|lab|tools|docs|examples|gres_conf|distributions)"
    r"/[\w./-]*\.(?:py|lua|sh|md|csv)\b"
)


def test_files_that_code_and_documents_name_are_there() -> None:
    sources = [
        path
        for folder in ("slurm_plugin", "gpumemnet", "bench", "lab", "tools")
        for path in (CHECKOUT / folder).rglob("*.py")
    ]
    reported = {
        f"{path.relative_to(CHECKOUT)}: {name}"
        for path in (*sources, *DOCUMENTS)
        if path.name != "CHANGELOG.md"  # shows of its time
        for name in OUR_FILE.findall(path.read_text(encoding="utf-8"))
        if not (CHECKOUT / name).exists() and name not in may_be_gone(path)
    }
    assert not reported, reported


PACKAGES = ("slurm_plugin", "gpumemnet", "prolog", "epilog", "lab", "tools", "tests")


SHORT_NAME = re.compile(r"(?<![\w/.\-{}*<])(?:[a-z_]\w*/)*[a-z_]\w*\.py\b")
"""A Python file, from some folder on."""
USERS_FILES = ("file.py", "hubconf.py", "path/to/file.py", "runs/train.py", "sitecustomize.py", "t.py")


def test_a_file_that_code_names_by_its_last_folders_is_there() -> None:
    files = [path for package in (*PACKAGES, "bench") for path in (CHECKOUT / package).rglob("*.py")]
    known = {"/".join(path.relative_to(CHECKOUT).parts[k:]) for path in files for k in range(8)}
    known |= {path.name for folder in ("examples", "docs") for path in (CHECKOUT / folder).rglob("*.py")}
    wrong = {
        f"{path.relative_to(CHECKOUT)}: {name}"
        for path in files
        if "tests" not in path.relative_to(CHECKOUT).parts
        for name in SHORT_NAME.findall(path.read_text(encoding="utf-8"))
        if name not in known and name not in USERS_FILES
    }
    assert not wrong


FOLDER_PAGES = sorted(
    page
    for package in PACKAGES
    for page in (CHECKOUT / package).rglob("README.md")
    if "results" not in page.parts
)
QUOTED = re.compile(r"`((?:[\w*]+/)*[\w*]+\.(?:py|lua|sh|csv))(?:: (\w+))?`")
"""A file in backticks, from some folder on, and a name that it defines."""


def test_each_package_has_a_page() -> None:
    deep = [path for package in PACKAGES[:2] for path in (CHECKOUT / package).iterdir()]
    packages = [
        *(CHECKOUT / package for package in PACKAGES),
        *(path for path in deep if (path / "__init__.py").exists()),
    ]
    assert [str(path.relative_to(CHECKOUT)) for path in packages if not (path / "README.md").exists()] == []


@pytest.mark.parametrize("page", FOLDER_PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_the_page_of_a_folder_is_short_and_names_files_that_are_there(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 40
    assert missing_of(page, page.parent) == []


def test_the_architecture_names_files_and_functions_that_are_there() -> None:
    assert missing_of(CHECKOUT / "ARCHITECTURE.md", CHECKOUT) == []


def test_the_architecture_writes_each_path_in_one_way() -> None:
    """Below slurm_plugin/ from there on, as it says at its beginning; the table of folders has whole paths."""
    named = {name for name, _ in QUOTED.findall((CHECKOUT / "ARCHITECTURE.md").read_text(encoding="utf-8"))}
    assert named and [name for name in named if name.startswith("slurm_plugin/")] == []


def test_the_page_of_the_tests_has_each_tier() -> None:
    tests = CHECKOUT / "tests"
    tiers = (tests / "README.md").read_text(encoding="utf-8").partition("\n\nIn `unit/`")[0]
    rows = "".join(re.findall(r"(?m)^\| (.*?) \|", tiers))
    named = set(re.findall(r"`(\w+)/`", rows))
    assert [name for name in named if not (tests / name).is_dir()] == []
    assert {path.relative_to(tests).parts[0] for path in tests.glob("*/**/test_*.py")} - named == set()


def test_the_manual_names_every_feature_that_can_be_switched_off() -> None:
    page = (CHECKOUT / "docs" / "admin" / "operation.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"one of `\[features\]`: ([^.]*)\.", page)
    assert re.findall(r"`(\w+)`", sentence) == list(Features.__annotations__)


def test_users_are_sent_to_no_command_of_developers() -> None:
    pages = [
        CHECKOUT / "docs" / f"{name}.md" for name in ("user", "reference", "troubleshooting", "glossary")
    ]
    found = [re.findall(r"`(?:make|python3 -m) [^`]*`", page.read_text(encoding="utf-8")) for page in pages]
    assert [each for each in found if each] == []


def test_no_document_names_a_package_of_one_release() -> None:
    pages = [*DOCUMENTS, *CHECKOUT.glob("distributions/**/*.md")]
    found = [page.name for page in pages if re.search(r"rad-slurm[-_]\d", page.read_text(encoding="utf-8"))]
    assert found == []


def missing_of(page: Path, folder: Path) -> list[str]:
    """Return the files and definitions that a page quotes and that are not there.

    Args:
        page: The document.
        folder: Where a name without folders may be, at any depth; others are looked for from the packages on.
    """
    missing = []
    for name, defined in QUOTED.findall(page.read_text(encoding="utf-8")):
        roots = (CHECKOUT, CHECKOUT / "slurm_plugin", folder)
        found = [path for root in roots for path in root.glob(name)] if "/" in name else []
        found = found or [
            path for root in (folder, CHECKOUT / "gpumemnet") for path in root.glob(f"**/{name}")
        ]
        if not found or (defined and not re.search(rf"(?m)^(?:def|class) {defined}\b", found[0].read_text())):
            missing.append(f"{name}: {defined}".removesuffix(": "))
    return missing


def test_make_targets_that_documents_name_exist() -> None:
    targets = set(TARGET.findall((CHECKOUT / "Makefile").read_text()))
    named = {
        target
        for document in DOCUMENTS
        for target in re.findall(r"`make ([a-z][a-z-]*)", document.read_text(encoding="utf-8"))
    }
    assert named <= targets, f"no such target: {', '.join(sorted(named - targets))}"


def test_variables_typed_behind_make_are_read_by_that_target() -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    recipes = dict(re.findall(r"(?m)^([a-z][a-z-]*):.*\n((?:\t.*\n)*)", makefile))
    texts = [makefile, *(document.read_text(encoding="utf-8") for document in DOCUMENTS)]
    typed = {found for text in texts for found in re.findall(r"`make ([a-z-]+) ([A-Z]+)=", text)}
    assert typed and {each for each in typed if f"$({each[1]})" not in recipes[each[0]]} == set()


PROGRAMS: dict[str, click.Command] = {"rad": rad, "rad-estimate": rad_estimate, "radd": radd}
FENCED = re.compile(r"^( *)```\w*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^ *(?:\$ )?((?:rad|rad-estimate|radd(?= --)) [^─\n]*)$", re.MULTILINE)
INLINE = re.compile(r"`((?:rad|rad-estimate|radd) [^`\n]+)`")

OF_THE_READER = re.compile(r"does not exist|'[A-Z]+' is not|requires an argument")


def commands_in(text: str) -> list[str]:
    """Return RAD's commands that a document shows its reader to type."""
    blocks = [match[2] for match in FENCED.finditer(text)]
    indented = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    typed = [match[1] for block in (*blocks, indented) for match in TYPED.finditer(block)]
    return list(dict.fromkeys([*typed, *INLINE.findall(text)]))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_our_programs_understand_every_command_in_the_documents(document: Path) -> None:
    """What follows `[`, `|` or a lone `--` is left out; a file of the reader's and a missing argument are no fault."""
    wrong = []
    for command in commands_in(document.read_text(encoding="utf-8")):
        program, *words = shlex.split(re.split(r" \[| [|>&] ?|;| -- |\.\.\.", command)[0], comments=True)
        try:
            understood(PROGRAMS[program], program, words)
        except click.MissingParameter:
            continue  # named in passing: `rad simulate --compress`
        except click.ClickException as exc:
            if not OF_THE_READER.search(exc.format_message()):
                wrong.append(f"{command}: {exc.format_message()}")
    assert not wrong, f"{document.name}: {'; '.join(wrong)}"


def understood(
    command: click.Command, name: str, words: list[str], parent: click.Context | None = None
) -> None:
    """Parse a command line as the program would, and run nothing."""
    with command.make_context(name, list(words), parent) as context:
        if isinstance(command, click.Group):
            found, sub, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            assert sub is not None
            understood(sub, str(found), rest, context)

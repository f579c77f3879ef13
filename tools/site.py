"""Build the site: the manual, and a reference generated from the code, built strictly into .rad/site/html."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.core.process.run import run

REQUIREMENTS = Path("requirements") / "site.txt"
_STEP_S = 600.0


def build_site(checkout: Path, home: Path, *, environment: Mapping[str, str]) -> Path:
    """Build the site, and return its first page. A broken link or any warning fails the build.

    Args:
        checkout: The manual and the code.
        home: A folder for MkDocs' environment.
        environment: What pip needs of the caller's environment.

    Raises:
        CommandError: Something could not be installed, or a page is wrong.
    """
    venv, needs = home / "venv", checkout / REQUIREMENTS
    stamp, wanted = venv / "installed", hashlib.sha256(needs.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(venv, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(venv)], timeout_s=_STEP_S, env=environment)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run([*pip, "-r", str(needs)], timeout_s=_STEP_S, env=environment)
        stamp.write_text(wanted)
    env = {
        **environment,
        "PYTHONPATH": f"{checkout}:{checkout / 'bench'}",
        "DISABLE_MKDOCS_2_WARNING": "true",
        "NO_MKDOCS_2_WARNING": "1",
    }
    config = ["--strict", "--quiet", "--config-file", str(checkout / "mkdocs.yml")]
    run([str(venv / "bin" / "python"), "-m", "mkdocs", "build", *config], timeout_s=_STEP_S, env=env)
    return checkout / ".rad" / "site" / "html" / "index.html"

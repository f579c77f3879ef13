"""Ask a real Prometheus every expression of the dashboards, and say which it refuses or has nothing for.

python3 bench/dashboards.py http://localhost:9090

The Prometheus scrapes as gres_conf/prometheus/prometheus.yml says. Variables of a dashboard stand for everything. An
expression without a series is no error: nothing may be wrong with the nodes, or nobody may wait.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "gres_conf" / "grafana"


def main() -> None:
    """Print a line for each expression; end with 1 if one is refused."""
    address = sys.argv[1].rstrip("/")
    refused = 0
    for path in sorted(FOLDER.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                said = _asked(address, target["expr"])
                refused += isinstance(said, str)
                shown = said if isinstance(said, str) else f"{len(said)} series {_some(said)}"
                print(f"{path.stem:<10} {panel['title'][:44]:<44} {target['refId']}  {shown}")
    print(f"{refused} refused")
    sys.exit(min(refused, 1))


def _asked(address: str, expression: str) -> list[dict[str, object]] | str:
    """Return the series of an expression, or why there are none to be had."""
    text = expression
    for name in ("$node", "$model"):
        text = text.replace(name, ".*")
    query = urllib.parse.urlencode({"query": text})
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=30) as answer:
            found: list[dict[str, object]] = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as exc:
        return f"REFUSED: {exc.read().decode(errors='replace')[:200]}"
    return found


def _some(series: list[dict[str, object]]) -> str:
    values = [one["value"][1] for one in series]  # type: ignore[index]
    return " ".join(f"{float(value):.4g}" for value in values[:4])


if __name__ == "__main__":
    main()

"""Extract the texts of models from notebooks, readmes and outputs of git repositories.

python bench/estimator/texts_mined.py FOLDER REPOSITORY...
"""

import json, re, subprocess, sys, hashlib
from pathlib import Path

OUT = Path(sys.argv[1])
HEAD = re.compile(r"Layer \(type|^\s*#?\s*Layer +Kernel|from +n +params +module")
MOD = re.compile(r"^[A-Za-z_][\w.]*\($")


def chunks(text):
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        line = lines[i]
        if "Layer (type" in line and ("Output Shape" in line or "Param #" in line):
            start = i
            k = i - 1
            while k >= max(0, i - 2) and (
                re.match(r"^\s*[=_━┏┓┳\-]+\s*$", lines[k]) or lines[k].startswith("Model:")
            ):
                start = k
                k -= 1
            end = i + 1
            last = i
            while end < len(lines) and end - last < 12:
                if re.search(r"params|Estimated Total", lines[end]):
                    last = end
                if "Layer (type" in lines[end]:
                    break
                if re.search(r"\d|──|└|[│┃|]", lines[end]) and end == last + 0:
                    pass
                if (
                    not lines[end].strip()
                    and end > i + 3
                    and any("rainable params" in l for l in lines[i:end])
                ):
                    break
                if lines[end].startswith("```"):
                    break
                if re.search(r"[\d\])]\s*│?\s*$|^\s*[=_━\-└├│┡]", lines[end]):
                    last = end
                end += 1
            body = lines[start : last + 1]
            if len(body) > 4:
                yield "table", "\n".join(body) + "\n"
            i = max(last, i + 1)
            continue
        m = re.match(r"^(\s*)([A-Z][\w.]*)\($", line)
        if m and i + 1 < len(lines) and re.match(r"^\s*\([\w.]+\): ", lines[i + 1]):
            ind = m.group(1)
            j = i + 1
            while j < len(lines) and lines[j].rstrip() != ind + ")":
                j += 1
            if j < len(lines) and j - i < 3000:
                yield "repr", "\n".join(lines[i : j + 1]) + "\n"
                i = j + 1
                continue
        i += 1


def texts_of(name, data):
    if name.endswith(".ipynb"):
        try:
            nb = json.loads(data)
        except Exception:
            return
        for cell in nb.get("cells", []):
            if cell.get("cell_type") == "markdown":
                yield "".join(cell.get("source", []))
                continue
            for o in cell.get("outputs", []) or []:
                t = o.get("text") or (o.get("data") or {}).get("text/plain") or ""
                h = (o.get("data") or {}).get("text/html")
                t = "".join(t)
                if t:
                    yield t
                if h and "Layer (type" in "".join(h):
                    yield "HTML" + "".join(h)
    else:
        yield data


def main():
    seen = set()
    n = 0
    for repo in sys.argv[2:]:
        rn = repo.split("/")[-2] if repo.endswith("/repo") else Path(repo).name
        names = (
            subprocess.run(
                ["git", "-C", repo, "ls-tree", "-r", "--name-only", "-z", "HEAD"], capture_output=True
            )
            .stdout.decode(errors="replace")
            .split("\0")
        )
        got = 0
        for name in names:
            if not name.endswith((".ipynb", ".md", ".rst", ".txt", ".out", ".py", ".log")):
                continue
            r = subprocess.run(["git", "-C", repo, "show", f"HEAD:{name}"], capture_output=True)
            if r.returncode:
                continue
            data = r.stdout.decode(errors="replace")
            if "Layer (type" not in data and "(\\n" not in data and "(\n" not in data:
                continue
            for t in texts_of(name, data):
                if t.startswith("HTML"):
                    parts = [("keras3html", t[4:])]
                else:
                    parts = chunks(t)
                for kind, body in parts:
                    if kind == "repr" and not re.search(
                        r"Conv|Linear|LSTM|GRU|Embedding|Norm|RNN|Dense", body
                    ):
                        continue
                    h = hashlib.sha1(re.sub(r"\s+", " ", body).encode()).hexdigest()[:8]
                    if h in seen:
                        continue
                    seen.add(h)
                    n += 1
                    got += 1
                    (OUT / f"{kind}-{rn[:30]}-{h}.txt").write_text(body)
        print(rn, got, file=sys.stderr)
    print(n)


main()

"""Correct near misses of directives: `# RAD model=a`, `#rad: model=a`, `#RAD model = a`, a script.

Users choose the length of these lines and radd reads them for all users, so nothing here reads a character twice, as a
regular expression with a run of blanks would.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_NAME, _BLANK = "rad", " \t"
_SEPARATORS = str.maketrans(";,|", "   ")
"""What sites put between the parts of a comment."""
_SAVE = "rad-estimate --save m.rad"
_WEIGHTS = (".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".h5")


def as_directive(line: str, keys: Collection[str]) -> str | None:
    """Return the `#RAD` line that a comment was probably meant to be; None if it is a comment.

    Args:
        line: A line of a job script, not a `#RAD` line.
        keys: Valid keys of such a line.

    >>> as_directive("# rad: batch_size = 8", ["model", "batch_size"])
    '#RAD batch_size=8'
    >>> as_directive("# RAD is not used here", ["model", "batch_size"]) is None
    True
    """
    text = line[1:].lstrip(_BLANK)
    words = text[len(_NAME) :].lstrip(_BLANK).removeprefix(":").lstrip(_BLANK)
    key, equals, _ = words.partition("=")
    if not text.lower().startswith(_NAME) or not equals or key.rstrip(_BLANK).lower() not in keys:
        return None
    return f"#RAD {closed_up(words)}"


def as_comment(text: str, keys: Collection[str]) -> str | None:
    """Return the `rad:` directive that a job's comment was probably meant to contain; None if there is none.

    Args:
        text: The comment.
        keys: Valid keys of a directive.

    >>> as_comment("RAD:memory=6G", ["memory"]), as_comment("run 7 #RAD memory=6G gpus=2", ["memory"])
    ('rad:memory=6G', 'rad:memory=6G,gpus=2')
    >>> as_comment("rad=memory=6G", ["memory"]), as_comment("radical: memory=6G", ["memory"])
    ('rad:memory=6G', None)
    >>> as_comment("run 7;rad:memory=6G", ["memory"]), as_comment("rad : memory=6G", ["memory"])
    ('rad:memory=6G', 'rad:memory=6G')
    """
    words = text.translate(_SEPARATORS).split()
    for at, word in enumerate(words):
        bare = word.lstrip("#")
        rest = bare[len(_NAME) :]
        if bare.lower().startswith(_NAME) and rest[:1] in ("", ":", "="):
            said = " ".join([rest[1:], *words[at + 1 :]]).lstrip(f"{_BLANK}:=")
            if said.partition("=")[0].strip(_BLANK).lower() in keys:
                return f"rad:{','.join(closed_up(said).split())}"
    return None


def closed_up(words: str) -> str:
    """Return words without spaces around `=` and commas between them; unchanged if anything is quoted.

    >>> closed_up(" model = a.txt, batch_size= 8 ")
    'model=a.txt batch_size=8'
    """
    if "'" in words or '"' in words:
        return words.strip()
    return re.sub(r",(?=\s|$)", "", "=".join(part.strip(_BLANK) for part in words.split("="))).strip()


def paired(words: Sequence[str], keys: Collection[str]) -> str | None:
    """Return the correct form of words written as command options or YAML; None if they are neither.

    Args:
        words: The words of a line, some without a `=`.
        keys: Valid keys.

    >>> paired(["--model", "a b.txt", "--batch-size", "8"], ["model", "batch_size"])
    'model="a b.txt" batch_size=8'
    >>> paired(["model:", "a.txt"], ["model"])
    'model=a.txt'
    >>> paired(["model", "is", "a.txt"], ["model"]) is None
    True
    """
    found, left = [], iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        key = name.lstrip("-").rstrip(":").replace("-", "_").lower()
        value = value if equals else next(left, "")
        if key not in keys or not value:
            return None
        found.append(f'{key}="{value}"' if " " in value else f"{key}={value}")
    return " ".join(found)


def quoted(words: Sequence[str], keys: Collection[str]) -> str | None:
    """Return words with quotes around a model name with spaces; None if there is no such name.

    Args:
        words: The words of a line.
        keys: Valid keys.

    >>> quoted(["model=my", "nets/a", "1.txt", "batch_size=8"], ["model", "batch_size"])
    'model="my nets/a 1.txt" batch_size=8'
    """
    start = next((at for at, word in enumerate(words) if word.startswith("model=")), None)
    if start is None:
        return None
    end = start + 1
    while end < len(words) and words[end].partition("=")[0] not in keys:
        end += 1
    if end == start + 1:
        return None
    name = " ".join(words[start:end]).partition("=")[2]
    return " ".join([*words[:start], f'model="{name}"', *words[end:]])


def no_summary(name: str) -> str | None:
    """Return the message for a name that is not a model summary; None if it may be one.

    >>> no_summary("runs/train.py")
    'a script, not a summary; to make one, run: rad-estimate --save m.rad -- python runs/train.py'
    """
    if name.endswith(".py"):
        return f"a script, not a summary; to make one, run: {_SAVE} -- python {name}"
    if name.endswith(_WEIGHTS):
        return f"weights, not a summary; to make one, run: {_SAVE} -- python train.py"
    if name.startswith("hf:"):
        return f"read beforehand, not by a job: {_SAVE} --module {name} --batch-size N --seq-len N; then model=m.rad"
    return None

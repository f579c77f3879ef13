"""Summaries as people save them: coloured, quoted, logged, wrapped, twice in a file, or at odds with what they say."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import SUMMARIES

from gpumemnet.errors import SetupError, SummaryError
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.summaries.texts.files import read_text
from gpumemnet.summaries.texts.formats.clean import clean, following
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.summaries.texts.read import text_of as text_at
from gpumemnet.summaries.texts.records import ModelSummary
from gpumemnet.training import TrainingSetup

NAMES = sorted(path.name for path in SUMMARIES.glob("*.txt"))
TABLES = [name for name in NAMES if name.endswith(("torchinfo.txt", "torchsummary.txt"))]
KERAS = [name for name in NAMES if name.endswith("keras.txt")]
TREES = [name for name in NAMES if name.endswith("repr.txt") and name != "parametrized.repr.txt"]


def text_of(name: str) -> str:
    return (SUMMARIES / name).read_text(encoding="utf-8")


def each_line(mark: str) -> Callable[[str], str]:
    return lambda text: "\n".join(mark + line for line in text.splitlines())


def two_ranks(mark: str) -> Callable[[str], str]:
    return lambda text: "\n".join(mark.format(rank) + line for line in text.splitlines() for rank in (0, 1))


def wrapped(width: int) -> Callable[[str], str]:
    def wrap(text: str) -> str:
        parts = (
            [line[at : at + width] for at in range(0, max(len(line), 1), width)] for line in text.splitlines()
        )
        return "\n".join("\n".join(part) for part in parts)

    return wrap


def notebook(text: str) -> str:
    """A notebook as nbformat writes it, with keys in order and a line of its own for each printed line."""
    printed = [f"{line}\n" for line in text.splitlines()]
    output = {"name": "stdout", "output_type": "stream", "text": printed}
    cell = {"cell_type": "code", "metadata": {}, "outputs": [output], "source": ["summary(model)\n", "x"]}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}, indent=1, ensure_ascii=False)


def numbered(mark: str) -> Callable[[str], str]:
    return lambda text: "\n".join(
        mark.format(at) + line for at, line in enumerate(text.splitlines(), start=1)
    )


def rich_log(text: str) -> str:
    first, *rest = text.strip("\n").splitlines()
    return "\n".join([f"[10:11:12] INFO     {first}   train.py:12", *(" " * 20 + line for line in rest)])


def rich_panel(text: str) -> str:
    rows = [f"│ {line:<180} │" for line in text.splitlines()]
    return "\n".join([f"╭{'─' * 182}╮", *rows, f"╰{'─' * 182}╯"])


SAVED: dict[str, Callable[[str], str]] = {
    "a notebook": notebook,
    "a web page": lambda text: f"<html><body><pre>{html.escape(text)}</pre></body></html>\n",
    "blanks of a web page": lambda text: text.replace("    ", "\xa0   "),
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "ts": numbered("Jan 02 10:11:{:02d} "),
    "seconds since the start": numbered("[{:6d}.012345] "),
    "journalctl": numbered("Jan 02 10:{:02d}:12 node1 python[123]: "),
    "a container's log": numbered("2026-01-02T10:11:12.{:09d}Z stdout F "),
    "docker compose": each_line("trainer-1  | "),
    "pdsh": two_ranks("node{}: "),
    "srun --label of a logger": each_line("0: [2026-01-02 10:11:12,123][train][INFO] - "),
    "Hydra's first line": lambda text: f"[2026-01-02 10:11:12,123][train][INFO] - {text}",
    "Loguru": each_line("2026-01-02 10:11:12.123 | INFO     | __main__:main:12 - "),
    "absl": numbered("I0102 10:11:12.{:06d} 140 train.py:12] "),
    "logging's own form": each_line("INFO:root:"),
    "numbers of lines": numbered("{:6d}\t"),
    "grep -n": numbered("{}:"),
    "a comment": each_line("# "),
    "Rich's log": rich_log,
    "Rich's panel": rich_panel,
    "Markdown": lambda text: f"# The model\n\n```text\n{text}\n```\n",
    "a printed configuration": lambda text: f"{{'lr': 0.1, 'model': {{'depth': 18}}}}\n{text}",
    "JSON before it": lambda text: f'{{"lr": 0.1}}\n{text}',
    "colours": lambda text: "\n".join(f"\x1b[1;32m{line}\x1b[0m" for line in text.splitlines()),
    "a window title": lambda text: f"\x1b]0;train\x07{text}",
    "a quoted mail": each_line("> "),
    "torchrun": two_ranks("[rank{}]: "),
    "srun --label": two_ranks("{}: "),
    "mpirun": two_ranks("[1,{}]<stdout>:"),
    "Ray": each_line("(train_fn pid=4711) "),
    "a log of each line": each_line("2026-01-02 10:11:12,123 - INFO - "),
    "a log around it": lambda text: f"2026-01-02 10:11:12,123 - INFO - go\n{text}\nEpoch 1 loss 3.2\n",
    "a log before its first line": lambda text: f"2026-01-02 10:11:12,123 INFO train: model is {text}",
    "an interactive session": lambda text: f">>> print(model)\n{text}\n>>> ",
    "80 columns": wrapped(80),
    "100 columns": wrapped(100),
    "two processes": lambda text: f"{text.rstrip()}\n{text}",
}


def said(summary: ModelSummary) -> tuple[object, ...]:
    """What a summary says, but for the line in which it says it."""
    layers = [layer._replace(line=0) for layer in summary.layers]
    return summary.format, layers, summary.total_params, summary.batch_size, summary.output_bytes


@pytest.mark.parametrize("name", TABLES + TREES + KERAS)
def test_a_text_is_read_however_it_was_saved(name: str) -> None:
    text = text_of(name)
    right = said(parse_text(text, path=name))
    for how, save in SAVED.items():
        saved, _ = text_at(save(text))
        assert said(parse_text(saved, path=name)) == right, how


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("name", ["residual.torchinfo.txt", "gpt2.repr.txt"])
def test_what_powershell_saves_is_a_text(name: str, mark: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes((mark + text_of(name)).replace("\n", "\r\n").encode(encoding))
    assert said(parse_text(read_text(path), path=name)) == said(parse_text(text_of(name), path=name))


@pytest.mark.parametrize("how", ["cp437", "latin-1", "?", "backslashes"])
def test_a_tree_that_was_drawn_in_another_encoding_is_recognised_by_its_numbers(how: str) -> None:
    text = text_of("residual.torchinfo.txt")
    spoilt = {
        "?": lambda: text.encode("ascii", "replace").decode(),
        "backslashes": lambda: text.encode("ascii", "backslashreplace").decode(),
    }.get(how, lambda: text.encode().decode(how))()
    assert said(parse_text(spoilt, path="m.txt")) == said(parse_text(text, path="m.txt"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "  | Name  | Type   | Params | Mode\n-----\n0 | model | ResNet | 11.7 M | train\n",
            "a table of Lightning, .*; trace the script with rad-estimate --save",
        ),
        ("┃    ┃ Name   ┃ Type   ┃ Params ┃\n│ 0  │ model  │ ResNet │ 11.7 M │\n", "a table of Lightning"),
        (
            "        Layer (type)     Output Shape     Param #     Tr. Param #\n"
            "=================================================================\n"
            "            Conv2d-1     [8, 6, 8, 8]         168             168\n",
            r"a table of pytorch_model_summary, .*; save torchinfo\.summary",
        ),
        (
            "├─Linear: 1-1     [8, 10]     650\n=====\nTotal params: 650\n",
            "the table's first lines are missing",
        ),
    ],
)
def test_what_is_taken_for_a_summary_is_answered_with_what_to_save(text: str, line: str) -> None:
    with pytest.raises(SummaryError, match=line):
        parse_text(text, path="m.txt")


def inside(text: str, cls: str, child: str) -> str:
    lines = "\n".join(f"  {line}" for line in text.strip().splitlines()).lstrip()
    return f"{cls}(\n  ({child}): {lines}\n)"


def test_quantized_weights_are_no_small_model() -> None:
    text = text_of("llama.repr.txt").replace(": Linear(", ": Linear4bit(")
    with pytest.raises(
        SummaryError, match=r":7: its weights are quantized .* rad-estimate --save m\.rad -- python"
    ):
        profile_with_warnings(text, TrainingSetup(batch_size=8, seq_len=128))


@pytest.mark.parametrize(
    ("cls", "child", "said"),
    [
        ("FullyShardedDataParallel", "_fsdp_wrapped_module", "FSDP: a rank has a part of this model"),
        ("PeftModelForCausalLM", "base_model", "LoRA: print(model) does not show what is frozen"),
        ("OptimizedModule", "_orig_mod", None),
        ("DistributedDataParallel", "module", None),
    ],
)
def test_a_way_to_train_that_a_text_cannot_tell_is_said(cls: str, child: str, said: str | None) -> None:
    setup = TrainingSetup(batch_size=8, seq_len=128)
    plain, _ = profile_with_warnings(text_of("llama.repr.txt"), setup)
    profile, warnings = profile_with_warnings(inside(text_of("llama.repr.txt"), cls, child), setup)
    assert profile.saved_bytes == plain.saved_bytes
    reported = [each for each in warnings if each.startswith(("FSDP:", "LoRA:"))]
    assert (
        not reported
        if said is None
        else reported[0].startswith(said) and "rad-estimate --save m.rad" in reported[0]
    )


def test_a_notebook_in_one_line_is_read() -> None:
    text = "Net(\n  (fc): Linear(in_features=784, out_features=10, bias=True)\n)\n"
    setup = TrainingSetup(batch_size=8)
    compact = json.dumps(json.loads(notebook(text))) + "\n"
    assert profile_with_warnings(compact, setup) == profile_with_warnings(text, setup)


def test_a_notebook_that_printed_no_summary_is_none() -> None:
    with pytest.raises(SummaryError, match="not a model summary"):
        profile_with_warnings(notebook("loss 3.2\nloss 3.1"), TrainingSetup())


def test_a_clean_text_stays_as_it_is() -> None:
    texts = {name: text_of(name) for name in NAMES}
    assert {name: clean(text) for name, text in texts.items()} == {
        name: "\n".join(text.splitlines()) for name, text in texts.items()
    }


@pytest.mark.parametrize("how", SAVED)
def test_messages_name_the_line_of_the_file(how: str) -> None:
    text = SAVED[how](text_of("bert.repr.txt"))
    assert len(clean(text_at(text)[0]).split("\n")) == len(text.splitlines())


@pytest.mark.parametrize("name", TABLES)
def test_log_lines_between_rows_are_left_out_and_named(name: str) -> None:
    lines = text_of(name).splitlines()
    at = next(number for number, line in enumerate(lines) if "Layer (type" in line) + 5
    noise = ["2026-01-02 10:11:12 INFO data ready", "/opt/x/net.py:33: UserWarning: deprecated"]
    found = parse_text("\n".join(lines[:at] + noise + lines[at:]), path=name)
    assert said(found) == said(parse_text("\n".join(lines), path=name))
    assert f"left out what is no part of the summary: lines {at + 1}, {at + 2}" in found.warnings


@pytest.mark.parametrize(
    ("first", "second"),
    [("residual.torchinfo.txt", "bert.torchinfo.txt"), ("gpt2.repr.txt", "vit.repr.txt")],
)
def test_two_models_in_one_file_are_refused(first: str, second: str) -> None:
    text = f"{text_of(first).rstrip()}\n\n{text_of(second)}"
    with pytest.raises(SummaryError, match=r"m\.txt:\d+: a second summary begins here; the first is in line"):
        parse_text(text, path="m.txt")


def test_other_tokens_than_the_shapes_show_are_refused() -> None:
    path = str(SUMMARIES / "bert.torchinfo.txt")
    assert profile_with_warnings(path, TrainingSetup(seq_len=16))
    with pytest.raises(
        SetupError, match="it shows 16 tokens and seq_len=512 was given; print it with inputs of 512"
    ):
        profile_with_warnings(path, TrainingSetup(seq_len=512))


def test_a_batch_in_the_second_dimension_is_not_scaled_as_if_it_were_the_first() -> None:
    path = str(SUMMARIES / "lstm.torchinfo.txt")  # shapes [4, 10, width]
    for batch_size in (None, 4, 64):
        assert profile_with_warnings(path, TrainingSetup(batch_size=batch_size))
    with pytest.raises(
        SetupError, match=r"batch_size=10 is the second dimension of its shapes, as in \[4, 10, 16\]"
    ):
        profile_with_warnings(path, TrainingSetup(batch_size=10))


def table(*layers: str, root: str = "Net") -> str:
    rule = "=" * 90
    head = f"{rule}\nLayer (type:depth-idx)   Output Shape   Param #\n{rule}\n{root}   {layers[-1].split('  ', 1)[1]}\n"
    rows = "".join(f"├─{layer}\n" for layer in layers)
    return f"{head}{rows}{rule}\nTotal params: 33,024\n{rule}\n"


@pytest.mark.parametrize(
    ("layers", "setup", "said"),
    [
        # no embedding shows the tokens: any shape does
        (["Linear: 1-1  [4, 100, 128]  16,512"], {"seq_len": 100}, None),
        (
            ["Linear: 1-1  [4, 100, 128]  16,512"],
            {"seq_len": 512},
            "none of its shapes has the 512 tokens of seq_len; print it with inputs of 512",
        ),
        (["Linear: 1-1  [4, 100, 128]  16,512"], {"seq_len": 128}, "none of its shapes has the 128 tokens"),
        (["Conv1d: 1-1  [4, 64, 16000]  16,512"], {"seq_len": 16000}, None),
        # a batch of as many samples as there are tokens, which the user shows
        (["Linear: 1-1  [4, 100, 128]  1,512", "ReLU: 1-2  [4, 100, 128]  --"], {"batch_size": 16}, None),
        (
            ["Linear: 1-1  [4, 100, 128]  1,512", "ReLU: 1-2  [4, 100, 128]  --"],
            {"batch_size": 100},
            "batch_size=100 is the second dimension .* or add seq_len=100 if those are its tokens",
        ),
        (
            ["Linear: 1-1  [4, 100, 128]  1,512", "ReLU: 1-2  [4, 100, 128]  --"],
            {"batch_size": 100, "seq_len": 100},
            None,
        ),
    ],
)
def test_tokens_and_batch_contradict_the_shapes_or_do_not(
    layers: list[str], setup: dict[str, int], said: str | None
) -> None:
    if said is None:
        assert profile_with_warnings(table(*layers), TrainingSetup(**setup))  # type: ignore[arg-type]
        return
    with pytest.raises(SetupError, match=said):
        profile_with_warnings(table(*layers), TrainingSetup(**setup))  # type: ignore[arg-type]


def test_a_doubt_about_tokens_or_the_batch_is_reported() -> None:
    def reported(setup: TrainingSetup, *layers: str) -> str:
        return " ".join(profile_with_warnings(table(*layers), setup)[1])

    flat = ("Linear: 1-1  [4, 128]  16,512",)
    assert "seq_len=512 changes nothing: the shapes show no tokens" in reported(
        TrainingSetup(seq_len=512), *flat
    )
    layers = ("LSTM: 1-1  [100, 4, 128]  16,512", "Linear: 1-2  [100, 4, 128]  16,512")
    doubt = "takes 100 for the batch of shapes like [100, 4, 128], and scales by it; if 4 is, print the model"
    assert doubt in reported(TrainingSetup(batch_size=16), *layers)
    assert doubt not in reported(TrainingSetup(batch_size=100), *layers)
    assert doubt not in reported(TrainingSetup(batch_size=16), layers[0], "Linear: 1-2  [100, 10]  16,512")
    assert "takes" not in reported(
        TrainingSetup(batch_size=16), *(each.replace("100, 4", "4, 100") for each in layers)
    )


TOKENS_FIRST = """
====================================================================================================
Layer (type:depth-idx)                   Input Shape               Output Shape              Param #
====================================================================================================
XLNetForSequenceClassification           [3, 128]                  [3, 2]                    --
├─XLNetModel: 1-1                        [3, 128]                  [128, 3, 64]              --
│    └─Embedding: 2-1                    [128, 3]                  [128, 3, 64]              64,000
│    └─Dropout: 2-2                      [256, 3, 64]              [256, 3, 64]              --
│    └─Linear: 2-3                       [128, 3, 64]              [128, 3, 256]             16,640
│    └─GELU: 2-4                         [128, 3, 256]             [128, 3, 256]             --
│    └─Linear: 2-5                       [128, 3, 256]             [128, 3, 64]              16,448
├─Linear: 1-2                            [3, 64]                   [3, 2]                    130
====================================================================================================
Total params: 97,218
Trainable params: 97,218
Non-trainable params: 0
====================================================================================================
"""


def test_a_batch_in_the_second_dimension_is_read_where_the_model_ends_with_it() -> None:
    def saved(text: str, batch_size: int | None) -> int:
        return profile_with_warnings(text, TrainingSetup(batch_size=batch_size))[0].saved_bytes

    first = TOKENS_FIRST.replace("[128, 3", "[3, 128").replace("[256, 3", "[3, 256")
    assert [saved(TOKENS_FIRST, size) for size in (None, 3, 6, 128)] == [
        saved(first, size) for size in (3, 3, 6, 128)
    ]
    assert saved(TOKENS_FIRST, 6) == pytest.approx(2 * saved(TOKENS_FIRST, 3), rel=0.01)


def test_a_text_of_limited_depth_names_the_call_that_shows_all() -> None:
    _, warnings = profile_with_warnings(str(SUMMARIES / "residual_depth2.torchinfo.txt"), TrainingSetup())
    assert (
        "the text hides what 4 blocks are made of, so more is booked than needed; print it with "
        'torchinfo.summary(model, input_size=..., depth=99, col_names=["input_size", "output_size", "num_params",'
        ' "kernel_size", "mult_adds"])' in warnings
    )
    _, warnings = profile_with_warnings(str(SUMMARIES / "bert.torchinfo.txt"), TrainingSetup())
    assert not any("depth=99" in warning for warning in warnings)


def test_what_follows_each_line_is_the_next_that_holds_anything() -> None:
    assert following(["a", "", " ", "b", ""]) == ["b", "b", "b", "", ""]
    assert following(["a"]) == [""]

"""What has weights or a shape that a text does not show is refused with its line, never counted as nothing."""

from __future__ import annotations

import pytest

from gpumemnet.errors import SummaryError
from gpumemnet.profile.build import profile_with_warnings
from gpumemnet.profile.record import ModelProfile
from gpumemnet.summaries.texts.formats.text import parse_sizes
from gpumemnet.training import TrainingSetup
from gpumemnet.units import MEGA, MIB

RULE = "=" * 65


def setup(**values: object) -> TrainingSetup:
    return TrainingSetup(**{"batch_size": 4, "stated": frozenset({"batch_size"}), **values})


def profile(text: str, **values: object) -> ModelProfile:
    return profile_with_warnings(text, setup(**values))[0]


def refusal(text: str, **values: object) -> str:
    with pytest.raises(SummaryError) as found:
        profile(text, **values)
    return str(found.value)


def printed(*rows: str) -> str:
    """Return the text of print(model) for these children."""
    return "\n".join(("Reader(", *(f"  ({at}): {row}" for at, row in enumerate(rows)), ")")) + "\n"


def keras(*rows: str, total: int) -> str:
    head = f"Layer (type)                 Output Shape              Param #\n{RULE}"
    return "\n".join((head, *rows, RULE, f"Total params: {total}", f"Trainable params: {total}", "")) + "\n"


@pytest.mark.parametrize(
    "leaf",
    [
        "Conv1D()",
        "QuantLinear()",
        "ColumnParallelLinear()",
        "LazyLinear(in_features=0, out_features=70, bias=True)",
        "RecursiveScriptModule(original_name=Linear)",
        "WordEmbedding()",
        "GCNConv(90, 70)",
    ],
)
def test_a_leaf_with_weights_and_no_size_is_refused_with_its_line(leaf: str) -> None:
    message = refusal(printed("Linear(in_features=90, out_features=70, bias=True)", leaf))
    assert ":3: " in message
    assert "rad-estimate --save m.rad -- python train.py" in message


@pytest.mark.parametrize(
    "leaf", ["SinusoidalPositions()", "RotaryEmbedding()", "DotProductAttention()", "RMSNorm()"]
)
def test_computed_tables_and_small_weights_are_no_reason_to_refuse(leaf: str) -> None:
    assert (
        profile(printed("Embedding(900, 64)", leaf, "Linear(in_features=64, out_features=900)")).seq_len == 0
    )


def test_experts_without_sizes_are_refused() -> None:
    text = printed("Linear(in_features=64, out_features=64)", "SparseExperts(\n    (act): SiLU()\n  )")
    assert "SparseExperts has weights" in refusal(text)


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("LoRACompatibleConv(3, 80, kernel_size=(3, 3))", "Conv2d(3, 80, kernel_size=(3, 3))"),
        (
            "EqualDense(in_features=90, out_features=70, bias=True)",
            "Linear(in_features=90, out_features=70, bias=True)",
        ),
        ("WordTable(900, 64, padding_idx=0)", "Embedding(900, 64, padding_idx=0)"),
        ("Up(3, 8, kernel_size=(2, 2), output_padding=(0, 0))", "ConvTranspose2d(3, 8, kernel_size=(2, 2))"),
    ],
)
def test_a_layer_by_another_name_is_what_its_arguments_show(name: str, like: str) -> None:
    assert profile(printed(name)).parameter_bytes == profile(printed(like)).parameter_bytes > 0


def test_quantized_layers_with_adapters_inside_are_refused() -> None:
    adapter = "(a): Linear(in_features=64, out_features=2)"
    inner = f"Linear8bitLt(\n    in_features=64, out_features=64, bias=False\n    {adapter}\n  )"
    assert "quantized" in refusal(printed(inner))


@pytest.mark.parametrize(
    "gap",
    ["    ...", "    (...)", "    (4): Block(\n      (fc): Linear(in_features=8, out_features=8)\n    )"],
)
def test_layers_that_were_left_out_are_refused(gap: str) -> None:
    block = "    (0): Block(\n      (fc): Linear(in_features=8, out_features=8)\n    )"
    message = refusal(f"Tower(\n  (blocks): ModuleList(\n{block}\n{gap}\n  )\n)\n")
    assert ":6: " in message
    assert "left out here; print the whole model again" in message


def test_shortened_containers_are_refused() -> None:
    assert "Half(...) are left out" in refusal(printed("Half(...)", "Linear(in_features=8, out_features=8)"))


def test_a_range_without_a_count_is_repeated() -> None:
    block = "Block(\n      (fc): Linear(in_features=80, out_features=80)\n    )"
    counts = [
        profile(f"Tower(\n  (blocks): ModuleList(\n    (0-6): {times}{block}\n  )\n)\n").parameter_bytes
        for times in ("7 x ", "")
    ]
    assert counts[0] == counts[1] == 7 * 4 * 81 * 80


@pytest.mark.parametrize(
    "other",
    [
        "Adam (\nParameter Group 0\n    lr: 0.1\n)",
        "Compose(\n    Resize(size=80)\n    ToTensor()\n)",
        "Namespace(\nseed=7,\n)",
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_blocks_around_a_model_are_set_aside(other: str, first: bool) -> None:
    model = printed("Linear(in_features=90, out_features=70, bias=True)")
    text = f"{other}\n{model}" if first else f"{model}{other}\n"
    assert profile(text) == profile(model)


def test_a_model_inside_a_keras_model_is_refused() -> None:
    text = keras("base (Functional)            (None, 8, 8, 64)          900000", total=900_000)
    assert "expand_nested=True" in refusal(text)


def test_an_unknown_large_layer_of_keras_is_refused() -> None:
    text = keras("reader (TFReaderMainLayer multiple                 900000", total=900_000)
    assert "reader holds 900,000 parameters" in refusal(text)


def test_a_name_as_long_as_its_column_is_read() -> None:
    wide = keras("mix (Conv2DTranspose)        (None, 16, 16, 30)        900", total=900)
    cut = keras("mix_of_them_all (Conv2DTrans (None, 16, 16, 30)        900", total=900)
    assert profile(cut).parameter_bytes == profile(wide).parameter_bytes == 3600


def test_rows_of_keras_that_are_cut_off_are_refused() -> None:
    row = "scan (Conv2D)                (None, 256, 256, 128 9000"
    assert "line_length=200" in refusal(keras(row, total=9000))
    assert "900 of 9,000 parameters" in refusal(keras("d (Dense)       (None, 30)      900", total=9000))


def test_open_sides_of_keras_are_refused_and_open_tokens_ask_for_the_length() -> None:
    sides = keras("scan (Conv2D)                (None, None, None, 32)    900", total=900)
    assert "keras.Input(" in refusal(sides)
    tokens = keras(
        "words (Embedding)            (None, None, 64)          64000",
        "out (Dense)                  (None, None, 10)          650",
        total=64650,
    )
    assert "--seq-len N" in refusal(tokens)
    few, many = (profile(tokens, seq_len=length).output_sum_bytes for length in (10, 10_000))
    assert many - few > 4 * 4 * 9000 * 64


def test_a_trained_keras_models_total_counts_its_optimizer_once() -> None:
    text = keras("d (Dense)                    (None, 30)                900", total=900)
    trained = text.replace("Total params: 900\n", "Total params: 2700\n") + "Non-trainable params: 0\n"
    assert profile(trained).parameter_bytes == profile(text).parameter_bytes


@pytest.mark.parametrize(
    ("line", "expected"),
    [("(MB): 4.00", 2 * MEGA), ("(GB): 4.00", 2000 * MEGA), ("(kB): 4.00", 2000), (": 400", 200)],
)
def test_torchinfos_sizes_are_read_in_each_unit(line: str, expected: int) -> None:
    assert parse_sizes(f"Forward/backward pass size {line}".replace(" :", ":"), unit=MEGA) == {
        "pass": expected
    }


def test_tokens_pass_a_convolution_along_them() -> None:
    rows = (
        "Embedding(900, 64)",
        "Conv1d(256, 256, kernel_size=(4,), padding=(3,), groups=256)",
        "Linear(in_features=64, out_features=256)",
        "Linear(in_features=256, out_features=900)",
    )
    short, long = (profile(printed(*rows), seq_len=length).output_sum_bytes for length in (100, 800))
    least, most = 4 * 4 * 700 * 900, 4 * 700 * 4 * (2 * 900 + 6 * 256 + 2 * 64)
    assert least < long - short < most


def test_video_patches_become_tokens() -> None:
    rows = (
        "Conv3d(3, 64, kernel_size=(2, 16, 16), stride=(2, 16, 16))",
        "LayerNorm((64,), eps=1e-06)",
        "Linear(in_features=64, out_features=64)",
        "Linear(in_features=64, out_features=10)",
    )
    given = profile(printed(*rows), input_shape=(4, 3, 16, 224, 224))
    assert given.output_sum_bytes < 4 * 64 * MIB
    assert profile(printed(*rows)).output_sum_bytes == given.output_sum_bytes


def test_a_generator_begins_with_one_pixel() -> None:
    rows = (
        "ConvTranspose2d(90, 64, kernel_size=(4, 4), stride=(1, 1))",
        "ConvTranspose2d(64, 3, kernel_size=(4, 4), stride=(2, 2), padding=(1, 1))",
    )
    assert profile(printed(*rows)).output_sum_bytes < 8 * MIB


def test_a_batch_of_sounds_of_one_channel_may_be_given_without_it() -> None:
    rows = ("Conv1d(1, 64, kernel_size=(9,), stride=(4,))", "Conv1d(64, 64, kernel_size=(9,), stride=(4,))")
    flat, full = (profile(printed(*rows), input_shape=shape) for shape in ((4, 90_000), (4, 1, 90_000)))
    assert flat == full


def test_the_input_gives_the_batch() -> None:
    model = printed("Conv2d(3, 8, kernel_size=(3, 3))")
    alone = profile_with_warnings(model, TrainingSetup(input_shape=(16, 3, 80, 80)))[0]
    assert alone == profile(model, batch_size=16, input_shape=(16, 3, 80, 80))


def test_a_rule_behind_a_table_is_no_wrapped_rule() -> None:
    table = (
        f"{'=' * 90}\nLayer (type:depth-idx)                   Output Shape              Param #\n{'=' * 90}\n"
        "Small                                    [8, 10]                   --\n"
        "├─Linear: 1-1                            [8, 10]                   2,570\n"
        f"{'=' * 90}\nTotal params: 2,570\nTrainable params: 2,570\nNon-trainable params: 0\n{'=' * 90}\n"
    )
    assert profile(table + "-" * 50 + "\n") == profile(table)


def table(*rows: str, total: int) -> str:
    """Return torchinfo's table of these rows: tree, shape, parameters."""
    head = f"{'=' * 90}\nLayer (type:depth-idx)                   Output Shape              Param #\n{'=' * 90}\n"
    return head + "\n".join(rows) + f"\n{'=' * 90}\nTotal params: {total:,}\nTrainable params: {total:,}\n"


@pytest.mark.parametrize(
    "leaf",
    [
        "Linear(5.13 k, 0.017% Params, 5.13 KMac, 0.0% MACs, in_features=90, out_features=70)",
        "Linear(5.13 k = 9% Params, 9 KMACs = 3% MACs, 10 KFLOPS = 3% FLOPs, in_features=90, out_features=70)",
        "Linear(5.13 k, 9% Params, 9 KMACs, 3% MACs, 80 us, 1.2% latency, in_features=90, out_features=70)",
        "Linear(in_features=90, out_features=70, bias=True, #params: 5.1K, #flops: 9K)",
        "Dense(90 -> 70, linear)",
        "Conv2D(3, 70, kernel_size=[3, 3], data_format=NCHW)",
    ],
)
def test_prints_of_profilers_and_other_libraries_are_no_print_of_a_model(leaf: str) -> None:
    message = refusal(printed(leaf))
    assert "torchinfo.summary(" in message or "#RAD memory=" in message


def test_rows_left_out_of_a_table_are_named() -> None:
    rows = ("Small                                    [8, 10]                   --", "├─...", "")
    assert "left out here" in refusal(table(*rows, total=2570))


def test_a_text_without_layers_requests_all_levels() -> None:
    assert "depth=99" in refusal("Wrapper(\n  (0): Reader({'words': 8})\n)\n")


def test_old_prints_of_activations_in_place_are_read() -> None:
    old, new = (
        profile(printed("Conv2d(3, 8, kernel_size=(3, 3))", act))
        for act in ("ELU(inplace)", "ELU(inplace=True)")
    )
    assert old == new != profile(printed("Conv2d(3, 8, kernel_size=(3, 3))", "ELU()"))

"""What a class name shows: users' own attention, activations in place, attention without a fused form."""

from __future__ import annotations

import pytest

from gpumemnet.estimators import conformal
from gpumemnet.profile.build import profile_summary, profile_with_warnings
from gpumemnet.summaries.graph.attention.sites import find_sites
from gpumemnet.summaries.texts import kinds
from gpumemnet.summaries.texts.formats.detect import parse_text
from gpumemnet.summaries.texts.model_names import ties_words
from gpumemnet.training import TrainingSetup

RULE = "=" * 90
HEAD = f"{RULE}\nLayer (type:depth-idx)                   Output Shape              Param #\n{RULE}\n"
OWN_ATTENTION = (
    HEAD
    + """Model                                    [8, 128, 512]             --
├─Embedding: 1-1                         [8, 128, 512]             512,000
├─MultiHeadAttention: 1-2                [8, 128, 512]             --
│    └─Linear: 2-1                       [8, 128, 512]             262,656
│    └─Linear: 2-2                       [8, 128, 512]             262,656
│    └─Linear: 2-3                       [8, 128, 512]             262,656
│    └─Linear: 2-4                       [8, 128, 512]             262,656
├─Linear: 1-3                            [8, 128, 1000]            513,000
"""
    + f"{RULE}\nTotal params: 2,075,624\nTrainable params: 2,075,624\nNon-trainable params: 0\n{RULE}\n"
)
CONVOLUTION = (
    HEAD
    + """Net                                      [8, 10]                   --
├─HOLDER: 1-1                            [8, 64, 112, 112]         --
│    └─Conv2d: 2-1                       [8, 64, 112, 112]         1,728
│    └─BatchNorm2d: 2-2                  [8, 64, 112, 112]         128
│    └─ReLU6: 2-3                        [8, 64, 112, 112]         --
├─Conv2d: 1-2                            [8, 64, 112, 112]         36,864
├─AdaptiveAvgPool2d: 1-3                 [8, 64, 1, 1]             --
├─Linear: 1-4                            [8, 10]                   650
"""
    + f"{RULE}\nTotal params: 39,370\nTrainable params: 39,370\nNon-trainable params: 0\n{RULE}\n"
)


def activations(text: str) -> int:
    return profile_summary(text, TrainingSetup(batch_size=8, seq_len=128)).reserved_bytes


def test_a_class_of_ones_own_called_multi_head_attention_is_read_by_its_layers() -> None:
    assert activations(OWN_ATTENTION) == activations(OWN_ATTENTION.replace("MultiHead", "Self"))
    assert kinds.canonical("MultiheadAttention") == "multiheadattention"


def test_activations_whose_gradient_follows_from_the_result_keep_one_tensor_in_place() -> None:
    """tests/unit/gpumemnet_trace/summaries/test_saved_tensors.py checks with PyTorch which ones those are."""
    elu = CONVOLUTION.replace("ReLU6: 2-3", "ELU: 2-3  ")
    alone = activations(elu.replace("HOLDER", "Sequential"))
    assert activations(elu.replace("HOLDER", "Conv2dNormActivation")) < alone
    cloned = activations(CONVOLUTION.replace("HOLDER", "Conv2dNormActivation"))
    assert cloned == activations(CONVOLUTION.replace("HOLDER", "Sequential"))
    kind = kinds.find("elu")
    assert kind is not None and kind.saves_input
    assert kinds.in_place(kind, "elu", "", {"inplace": True}).saves_output
    assert kinds.in_place(kind, "elu", "", {}) is kind
    gelu = kinds.find("gelu")
    assert gelu is not None and kinds.in_place(gelu, "gelu", "", {"inplace": True}) is gelu


def test_a_relu_after_a_convolution_works_in_place_where_no_argument_shows_otherwise() -> None:
    relu = kinds.find("relu")
    assert relu is not None
    assert kinds.in_place(relu, "relu", "", {}, usual=True).in_place
    assert not kinds.in_place(relu, "relu", "", {"inplace": False}, usual=True).in_place
    assert not kinds.in_place(relu, "relu", "", {}).in_place
    assert kinds.in_place(relu, "relu", "BatchNormAct2d", {}).in_place


@pytest.mark.parametrize(
    ("name", "tied"),
    [
        ("YosoForMaskedLM", True),
        ("NewForConditionalGeneration", True),
        ("EuroBertForMaskedLM", False),
        ("LlamaForCausalLM", False),
        ("BertForMaskedLM", True),
    ],
)
def test_models_for_masked_words_and_for_pairs_of_sequences_tie_their_words(name: str, tied: bool) -> None:
    assert ties_words(name) is tied


@pytest.mark.parametrize(
    ("name", "eager"),
    [
        ("RemBertSelfAttention", True),
        ("T5Attention", True),
        ("BertSelfAttention", False),
        ("DigitAttention", False),
    ],
)
def test_attention_without_a_fused_form_writes_its_scores(name: str, eager: bool) -> None:
    layers = parse_text(OWN_ATTENTION.replace("MultiHeadAttention", name), path="x").layers
    (site,) = find_sites(layers).values()
    assert site.eager is eager


def test_a_learned_scale_makes_32_bits_without_a_cast() -> None:
    for name in ("layerscale", "dinov2layerscale", "layerscale2d"):
        kind = kinds.find(name)
        assert kind is not None and kind.compute == "promote" and kind.saves_input


HIDDEN = (
    HEAD
    + """Model                                    [2, 1000]                 --
├─Encoder: 1-1                           [2, 1, 384]               --
│    └─ModuleList: 2-1                   --                        19,611,712
├─Linear: 1-2                            [2, 1000]                 385,000
"""
    + f"{RULE}\nTotal params: 19,996,712\nTrainable params: 19,996,712\nNon-trainable params: 0\n{RULE}\n"
    + "Input size (MB): 1.20\nForward/backward pass size (MB): 265.23\nParams size (MB): 79.99\n"
    + f"Estimated Total Size (MB): 346.42\n{RULE}\n"
)


def test_a_text_that_hides_nearly_all_says_so_and_has_a_bound_of_its_own_kind() -> None:
    setup = TrainingSetup(batch_size=2)
    profile, warnings = profile_with_warnings(HIDDEN, setup)
    assert conformal.kind(profile) == "torchinfo_untold"
    assert any("depth=99" in warning for warning in warnings)
    reported, warnings = profile_with_warnings(HIDDEN.replace("265.23", "0.10"), setup)
    assert conformal.kind(reported) == "torchinfo_hidden"
    assert not any("hides nearly all" in warning for warning in warnings)


def attention_text(container: str, rows: str, params: int) -> str:
    """A model with one attention module on 4 x 64 tokens of 128 features, and a dropout at its end."""
    total = 2 * 16512 + params
    return (
        f"{HEAD}Net                                      [4, 64, 128]              --\n"
        f"├─Linear: 1-1                            [4, 64, 128]              16,512\n"
        f"├─{container}: 1-2                       [4, 64, 128]              --\n"
        f"{rows}"
        f"├─Dropout: 1-3                           [4, 64, 128]              --\n"
        f"├─Linear: 1-4                            [4, 64, 128]              16,512\n"
        f"{RULE}\nTotal params: {total:,}\nTrainable params: {total:,}\n{RULE}\n"
    )


def saved(container: str, rows: str, params: int) -> int:
    return profile_summary(attention_text(container, rows, params), TrainingSetup(batch_size=4)).saved_bytes


EACH = "│    └─Linear: 2-{}                       [4, 64, {}]              {}\n"
APART = "".join(EACH.format(at, 128, "16,512") for at in range(1, 5))
QK_AND_V = EACH.format(1, 256, "33,024") + EACH.format(2, 128, "16,512") + EACH.format(3, 128, "16,512")
ONE_KEY = EACH.format(1, 160, "20,640") + EACH.format(2, 128, "16,512")
SCORES = 4 * 2 * 64 * 64 * 4
"""Two heads of 64."""


def test_a_function_drops_scores_that_are_written_out_where_the_model_drops_elsewhere() -> None:
    """transformers' own eager attention keeps the softmax, what is left of it, and a mask of a byte each."""
    dropped = saved("LayoutLMSelfAttention", APART, 4 * 16512)
    own = APART + "│    └─Dropout: 2-5                      [4, 64, 128]              --\n"
    kept = saved("LayoutLMSelfAttention", own, 4 * 16512) - 4 * 64 * 128  # that row's own mask
    assert dropped - kept == SCORES + SCORES // 4


def test_queries_and_keys_of_one_layer_and_values_of_another_are_one_attention() -> None:
    assert saved("Attention", QK_AND_V, 66048) == saved("Attention", APART, 4 * 16512)


def test_one_key_for_all_queries_is_attention_with_repeated_keys() -> None:
    """Falcon, GPT-BigCode: 128 queries and 2 x 16 for the one head of keys and values."""
    text = attention_text("Attention", ONE_KEY, 37152)
    (site,) = find_sites(parse_text(text, path="x").layers).values()
    assert (len(site.projections), site.width) == (1, 128)
    assert saved("Attention", ONE_KEY, 37152) > saved("Attention", APART, 4 * 16512)


@pytest.mark.parametrize(("block", "written"), [("BertLayer", False), ("MegatronBertLayer", True)])
def test_hidden_attention_writes_its_scores_out_where_its_class_says_so(block: str, written: bool) -> None:
    shown = attention_text("X", "", 198272)
    row = next(line for line in shown.splitlines() if "X: 1-2" in line)
    hidden = shown.replace(row, row.replace("X", block).replace("--", "198,272"))
    found = profile_summary(hidden, TrainingSetup(batch_size=4))
    assert found.hidden_bytes
    assert bool(found.score_bytes) == written


def test_state_space_layers_are_reported_as_unknown() -> None:
    """Their step through time in Python keeps up to ten times what any row shows; a trace of the code knows it."""
    text = OWN_ATTENTION.replace("MultiHeadAttention", "Mamba2Mixer       ").replace(
        "Mamba2Mixer       :", "Mamba2Mixer:"
    )
    profile, warnings = profile_with_warnings(text, TrainingSetup(batch_size=8))
    assert conformal.kind(profile) == "torchinfo_untold"
    assert any("state-space" in warning and "rad-estimate -- python" in warning for warning in warnings)
    plain, _ = profile_with_warnings(OWN_ATTENTION, TrainingSetup(batch_size=8))
    assert conformal.kind(plain) == "torchinfo"

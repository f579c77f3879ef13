"""Tables of properties that follow from the class names of published models, but that no row shows.

Taken from transformers 5.23. To regenerate: the first lists model classes with `_supports_sdpa = False` (or that had it
before, as T5's and LayoutLM's relatives), the second configurations with `tie_word_embeddings` on by default; the
activations are those of configurations made without arguments.
"""

from __future__ import annotations

from collections.abc import Iterable

EAGER_STARTS = (
    *(
        "mhsa",
        "led",
        "mpt",
        "aligntext",
        "autoformer",
        "bark",
        "blip",
        "bloom",
        "bridgetower",
        "bros",
        "canine",
    ),
    *("clap", "clvp", "codegen", "convbert", "cpmant", "cvt", "flava", "falcon", "gemma2", "git", "glpn"),
    *(
        "gptneoself",
        "gptneoxjapanese",
        "gptj",
        "gptoss",
        "groupvit",
        "ibert",
        "imagegpt",
        "informer",
        "layoutlm",
    ),
    *(
        "lilt",
        "luke",
        "lxmert",
        "markuplm",
        "megatronbert",
        "mgpstr",
        "mobilevitself",
        "mobilevitattention",
        "mvp",
    ),
    *(
        "nllbmoe",
        "pegasusx",
        "perceiver",
        "prophetnet",
        "pvt",
        "rembert",
        "roformer",
        "seggpt",
        "speech2text",
    ),
    *("speecht5", "splinter", "squeezebert", "superglue", "swin2sr", "swinv2", "switchtransformers", "tapas"),
    *("timeseries", "timesformer", "trocr", "tvp", "vilt", "visualbert", "vits", "wavlm", "xglm"),
)
"""Starts of the lower-case class names of attention that materializes its scores. Falcon's queries outnumber keys that
are not repeated, which no fused form takes."""
EAGER_PARTS = (
    *(
        "gpsa",
        "xlnet",
        "disentangled",
        "mpnet",
        "longformer",
        "bigbird",
        "ctrl",
        "transfoxl",
        "reformer",
        "funnel",
    ),
    "t5attention",
)
"""Parts anywhere in such names; GPSA is that of timm's ConViT."""
TIED_STARTS = (
    *(
        "Bert",
        "Roberta",
        "XLMRoberta",
        "Camembert",
        "Electra",
        "Albert",
        "DistilBert",
        "MPNet",
        "GPT2",
        "GPTNeo",
    ),
    *("OPT", "Bloom", "T5", "MT5", "Bart", "MBart", "Pegasus", "Marian", "XLNet", "XLM", "Deberta", "Gemma"),
    *("Whisper", "Blenderbot", "CTRL", "Longformer", "BigBird", "M2M", "Falcon", "Mpt", "ConvBert", "Ernie"),
    *("Flaubert", "FNet", "MobileBert", "SqueezeBert", "GPTBigCode", "ProphetNet", "Funnel", "RoFormer"),
    *(
        "GraniteSWA",
        "Lfm2",
        "Mamba",
        "MiniCPM3",
        "Nystromformer",
        "LayoutLM",
        "LED",
        "Plbart",
        "Cohere",
        "Xglm",
        "XGLM",
        "Biogpt",
        "BioGpt",
    ),
)
"""Starts of class names of models that use the word embedding as output layer by default."""
TIED_ENDS = ("ForMaskedLM", "ForConditionalGeneration", "ForTextToText", "ForPreTraining", "LMHeadModel")
"""Ends of such names: of transformers' 48 models for masked words and 35 for pairs of sequences nearly all tie."""
UNTIED_STARTS = ("GPTNeoXFor", "FalconH1", "FalconMamba", "EuroBert", "FSMT", "Luke")
"""Longer names among them without a tied output layer."""


_FIVE_DIMENSIONS = ("NestLevel",)
"""Container classes of attention on blocks of tokens in a separate dimension, which no fused form takes."""


def blocks_of_tokens(classes: Iterable[str]) -> bool:
    """Return whether attention in these classes runs on five-dimensional tensors, and so materializes its scores."""
    return any(name in _FIVE_DIMENSIONS for name in classes)


_EAGER_MODELS = ("FSMT",)
"""Starts of class names of models whose attention class, "Attention", gives no indication."""


def writes_scores(attention_class: str, model_class: str = "") -> bool:
    """Return whether attention of this class materializes its scores, so that they are saved for backward.

    Args:
        attention_class: Class name of the attention module.
        model_class: Class name of the outermost module; empty if unknown.
    """
    name = attention_class.lower()
    if model_class.startswith(_EAGER_MODELS):
        return True
    return name.startswith(EAGER_STARTS) or any(part in name for part in EAGER_PARTS)


_FUNCTIONAL_DROPOUT = ("xglm", "prophetnet")


def drops_by_function(attention_class: str) -> bool:
    """Return whether attention of this class materializes its scores and drops some by a function."""
    return attention_class.lower().startswith(_FUNCTIONAL_DROPOUT)


_IMAGE_MODELS = ("ForImageClassification", "ForSemanticSegmentation", "ForMaskedImageModeling")
_DROPPING_IMAGE_MODELS = ("ImageGPT", "MobileViTFor", "Perceiver", "EfficientNet")
_UNDROPPED = ("GPTJ", "Bloom", "CodeGen", "Falcon", "StableLm", "Persimmon", "Phi3")


def drops_nothing(model_class: str) -> bool:
    """Return whether transformers' model of this class has dropout rate 0 by default.

    This holds for its models for images, except a few (and except classifiers, which drop one vector), and for language
    models published with rate 0.
    """
    images = model_class.endswith(_IMAGE_MODELS) and not model_class.startswith(_DROPPING_IMAGE_MODELS)
    return images or (model_class.startswith(_UNDROPPED) and model_class.endswith("ForCausalLM"))


def mixes_positions(attention_class: str) -> bool:
    """Return whether attention of this class mixes in scores of positions, as gated positional attention."""
    return "gpsa" in attention_class.lower()


def rotates(attention_class: str) -> bool:
    """Return whether attention of this class rotates queries and keys by their positions (timm: AttentionRope)."""
    return "rope" in attention_class.lower() or "rotary" in attention_class.lower()


_GELU_SPELT_OUT = ("Esm",)


def spells_gelu_out(model_class: str) -> bool:
    """Return whether a model of this class composes its GELU of an error function, x/2 (1 + erf(x / sqrt 2))."""
    return model_class.startswith(_GELU_SPELT_OUT) and not model_class.startswith("Esmc")


_NEW_GELU = (
    "Albert",
    "BigBird",
    "CodeGen",
    "FNet",
    "Funnel",
    "GPT2",
    "GPTJ",
    "GPTNeo",
    "MT5",
    "Nystromformer",
    "Phi",
    "UMT5",
)
_RELU = (
    *("FSMT", "LongT5", "M2M100", "MobileBert", "NllbMoe", "OPT", "Pop2Piano", "Reformer", "Speech2Text"),
    *("T5", "Udop", "Vits"),
)
_OTHER_GELU = ("GPTNeoX", "Phi3", "Phi4", "Phimoe", "T5Gemma", "T5Layer", "FNetBasic")
"""Starts of other names of such models or parts."""


def usual_activation(classes: Iterable[str]) -> str | None:
    """Return the default activation in transformers' configurations of a model.

    Only those whose memory differs from a GELU's: composed (`NewGELUActivation`) or a ReLU.

    Args:
        classes: Class names of a block and its containers.

    Returns:
        A kind of layer; None if the names do not determine it.
    """
    for name in classes:
        if name.startswith(_OTHER_GELU):
            continue
        if name.startswith(_NEW_GELU):
            return "newgeluactivation"
        if name.startswith(_RELU):
            return "relu"
    return None


def ties_words(model_class: str) -> bool:
    """Return whether a model of this class also uses its word embedding as output layer."""
    tied = model_class.startswith(TIED_STARTS) or model_class.endswith(TIED_ENDS)
    return tied and not model_class.startswith(UNTIED_STARTS)

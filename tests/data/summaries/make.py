"""Write the summary texts next to this file, from models with random weights.

python tests/data/summaries/make.py        needs torch, torchinfo, torchsummary, transformers; Keras 3 if installed
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import torch
import torchinfo
import torchsummary
import transformers as hf
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
ALL = ("input_size", "output_size", "num_params", "params_percent", "kernel_size", "mult_adds", "trainable")


class Residual(nn.Module):
    """A residual block that calls its one activation three times."""

    def __init__(self, width: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        same = stride == 1 and width == out
        self.downsample = (
            None if same else nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class BasicNet(nn.Module):
    """Stem, four residual blocks, head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Residual(16, 16), Residual(16, 16))
        self.layer2 = nn.Sequential(Residual(16, 32, 2), Residual(32, 32))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1))


class Shared(nn.Module):
    """One linear layer used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.once = nn.Linear(32, 32)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        for _ in range(3):
            x = self.act(self.once(x))
        return x


class TwoHeads(nn.Module):
    """Two inputs, a parameter of its own, a shared layer, a frozen one, two outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 32))
        self.a, self.b, self.shared = nn.Linear(8, 32), nn.Linear(6, 32), nn.Linear(32, 32)
        self.heads = nn.ModuleList([nn.Linear(32, 4), nn.Linear(32, 5)])
        self.b.requires_grad_(False)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Run it."""
        h = self.shared(self.a(x)) + self.shared(self.b(y))
        return {"one": self.heads[0](h), "two": self.heads[1](h)}


class TwoHeadsInOne(TwoHeads):
    """The same with one output, for torchsummary."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Run it."""
        return torch.cat(list(super().forward(x, y).values()), -1)


class LSTM(nn.Module):
    """A language model whose class is called as a layer is."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.rnn = nn.LSTM(16, 32, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 50)

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        return self.head(self.rnn(self.words(x))[0])


class BasicConv2d(nn.Sequential):
    """As torchvision's inception_v3 calls its blocks."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__(nn.Conv2d(width, out, 3, bias=False), nn.BatchNorm2d(out), nn.ReLU())


class BatchNormAct2d(nn.BatchNorm2d):
    """A norm that holds its activation, as timm has it."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.drop, self.act = nn.Identity(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        return self.act(self.drop(super().forward(x)))


class Borrowed(nn.Module):
    """Parameters in lists, weights that are computed, names with spaces, repeats of repeats, words of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = nn.ParameterList([nn.Parameter(torch.zeros(3, 3)), nn.Parameter(torch.zeros(7))])
        self.by_name = nn.ModuleDict({"a b": nn.Linear(16, 2)})
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(16, 8))
        self.stages = nn.ModuleList(
            nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(4)) for _ in range(2)
        )

    def extra_repr(self) -> str:
        """Two lines."""
        return "alpha=3,\nbeta=4"


def parameters_text(model: nn.Module, **options: object) -> str:
    """Return what torchinfo prints with a row for each parameter."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        torchinfo.summary(model, verbose=2, **options)
    return out.getvalue()


def torchsummary_text(model: nn.Module, shape: tuple[int, ...], batch_size: int = -1) -> str:
    """Return what torchsummary prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        torchsummary.summary(model, shape, batch_size=batch_size, device="cpu")
    return out.getvalue()


def annotated(model: nn.Module) -> str:
    """Return print(model) with each module's parameter count behind its line."""
    counts = {}
    for name, module in model.named_modules():
        counts[name] = sum(p.numel() for p in module.parameters())

    def lines(module: nn.Module, name: str, label: str, depth: int) -> list[str]:
        children = list(module.named_children())
        head = "  " * depth + (f"({label}): " if label else "") + type(module).__name__
        if not children:
            return [f"{'  ' * depth}({label}): {module!r}, {counts[name]:,} params"]
        inner = [
            line
            for key, child in children
            for line in lines(child, f"{name}.{key}".lstrip("."), key, depth + 1)
        ]
        return [f"{head}(", *inner, f"{'  ' * depth}), {counts[name]:,} params"]

    total = f"{counts['']:,}"
    return "\n".join(
        [*lines(model, "", "", 0), "=" * 71, f"Total params: {total}", f"Trainable params: {total}", ""]
    )


def keras_texts() -> dict[str, str]:
    """Return what Keras prints; nothing if it is not installed."""
    os.environ["KERAS_BACKEND"] = "torch"
    try:
        import keras
    except ImportError:
        return {}
    layers = keras.layers
    cnn = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(16, 3, padding="same"),
            layers.BatchNormalization(),
            layers.Activation("relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )
    image = keras.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, padding="same", name="a_convolution_with_a_long_name")(image)
    y = layers.Activation("relu")(layers.BatchNormalization()(x))
    z = layers.Add()([y, layers.SeparableConv2D(16, 3, padding="same")(y)])
    z = layers.Conv2DTranspose(8, 2, strides=2)(layers.Concatenate()([z, y]))
    functional = keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling2D()(z)))
    inner = keras.Sequential([keras.Input((10,)), layers.Dense(5), layers.Dense(5)])
    inner.trainable = False
    nested = keras.Sequential([keras.Input((10,)), inner, layers.Dropout(0.5), layers.Dense(3)])
    tokens = keras.Input((12,), batch_size=4)
    words = layers.Embedding(50, 16)(tokens)
    mixed = layers.LayerNormalization()(layers.MultiHeadAttention(2, 8)(words, words) + words)
    attention = keras.Model(tokens, layers.Dense(2)(layers.LSTM(20)(mixed)))

    def text(model: keras.Model, **options: object) -> str:
        out: list[str] = []
        model.summary(print_fn=lambda line, **_: out.append(line), **options)
        return "\n".join(out) + "\n"

    return {
        "cnn.keras.txt": text(cnn, line_length=76),
        "functional.keras.txt": text(functional),
        "nested.keras.txt": text(nested, expand_nested=True, show_trainable=True),
        "attention.keras.txt": text(attention),
    }


def rarer_texts(net: BasicNet) -> dict[str, str]:
    """Return texts of unusual options and models."""
    info, image = torchinfo.summary, (8, 3, 64, 64)
    blocks = nn.Sequential(BasicConv2d(3, 8), BasicConv2d(8, 8), BatchNormAct2d(8), nn.Conv2d(8, 4, 1))
    columns = ("trainable", "num_params", "kernel_size", "output_size")
    return {
        "residual_no_names.torchinfo.txt": str(info(net, image, verbose=0, depth=9, row_settings=())),
        "residual_batch_dim.torchinfo.txt": str(info(net, image[1:], batch_dim=0, verbose=0, depth=9)),
        "two_heads_parameters.torchinfo.txt": parameters_text(
            TwoHeads(), input_size=[(8, 8), (8, 6)], depth=9, col_names=columns
        ),
        "two_heads.torchsummary.txt": torchsummary_text(TwoHeadsInOne(), [(8,), (6,)]),
        "lstm.torchinfo.txt": str(
            info(LSTM(), input_data=torch.ones(4, 10, dtype=torch.long), verbose=0, col_names=ALL[::-1])
        ),
        "named_as_layers.torchinfo.txt": str(info(blocks, image, verbose=0, depth=9)),
        "named_as_layers.repr.txt": f"{blocks!r}\n",
        "parametrized.repr.txt": f"{Borrowed()!r}\n",
    }


def main() -> None:
    """Write all files."""
    torch.manual_seed(0)
    net = BasicNet()
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    bert = hf.BertForSequenceClassification(hf.BertConfig(vocab_size=100, **small))
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
    t5 = hf.T5Config(vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    image = (8, 3, 64, 64)
    info = torchinfo.summary
    texts = {
        "residual.torchsummary.txt": torchsummary_text(net, image[1:]),
        "residual_batch8.torchsummary.txt": torchsummary_text(net, image[1:], 8),
        "residual.torchinfo.txt": str(info(net, image, verbose=0)),
        "residual_all_columns.torchinfo.txt": str(info(net, image, verbose=0, depth=9, col_names=ALL)),
        "residual_depth2.torchinfo.txt": str(info(net, image, verbose=0, depth=2)),
        "residual_ascii.torchinfo.txt": str(
            info(
                net,
                image,
                verbose=0,
                depth=9,
                col_names=ALL[:3],
                row_settings=("ascii_only", "var_names", "depth"),
            )
        ),
        "residual_no_input.torchinfo.txt": str(info(net, verbose=0, depth=9)),
        "residual.repr.txt": f"{net!r}\n",
        "residual_annotated.repr.txt": annotated(net),
        "shared.torchinfo.txt": str(info(Shared(), (4, 32), verbose=0)),
        "encoder.torchinfo.txt": str(
            info(encoder.train(), (4, 16, 64), verbose=0, depth=9, col_names=ALL[:3])
        ),
        "encoder.repr.txt": f"{encoder!r}\n",
        "bert.torchinfo.txt": str(
            info(
                bert,
                input_data={"input_ids": torch.ones(4, 16, dtype=torch.long)},
                verbose=0,
                depth=9,
                col_names=ALL[:3],
            )
        ),
        "bert_default.torchinfo.txt": str(
            info(bert, input_data={"input_ids": torch.ones(4, 16, dtype=torch.long)}, verbose=0)
        ),
        "vit.repr.txt": f"{hf.ViTForImageClassification(hf.ViTConfig(**small))!r}\n",
    }
    for name, model in {
        "gpt2": hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100)),
        "llama": hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=100, num_key_value_heads=2, **small)),
        "t5": hf.T5ForConditionalGeneration(t5),
        "bert": bert,
    }.items():
        texts[f"{name}.repr.txt"] = f"{model!r}\n"
        texts[f"{name}_no_input.torchinfo.txt"] = str(info(model, verbose=0, depth=9))
        texts[f"{name}_no_input_default.torchinfo.txt"] = str(info(model, verbose=0))
    texts |= rarer_texts(net) | keras_texts()
    for name, text in texts.items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

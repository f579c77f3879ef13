"""Write models with random weights for programs that fine-tune: python bench/programs/model_data.py FOLDER.

Each is a folder that `from_pretrained` reads: a Llama of 8 layers, a latent diffusion pipeline of a fifth of Stable
Diffusion's channels, BERT's small sibling, and the published autoencoder's shape under its name. Needs transformers and
diffusers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from example_data import WORDS, sentences


def llama(root: Path) -> None:
    """A Llama of 512 channels and 8 layers, with a tokenizer of some hundred tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<s>", "</s>", "<pad>"], initial_alphabet=alphabet
    )
    fast.train_from_iterator(sentences(500), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    config = LlamaConfig(
        vocab_size=32000, hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8
    )
    LlamaForCausalLM(config).save_pretrained(root / "small_llama")
    tokenizer.save_pretrained(root / "small_llama")


def bert(root: Path) -> None:
    """BERT with 6 layers of 384 channels."""
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = root / "small_bert"
    folder.mkdir(exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)
    BertModel(config).save_pretrained(folder)


def autoencoder(root: Path) -> None:
    """The autoencoder of latent diffusion as published: 84 million weights."""
    from diffusers import AutoencoderKL

    _autoencoder(AutoencoderKL, (128, 256, 512, 512), 2).save_pretrained(
        root / "stabilityai" / "sd-vae-ft-ema"
    )


def diffusion(root: Path) -> None:
    """A pipeline as Stable Diffusion's, a fifth of the channels of its U-Net, a quarter of its autoencoder's."""
    from diffusers import AutoencoderKL, DDPMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    folder = root / "small_diffusion"
    folder.mkdir(exist_ok=True)
    text = folder / "words"
    text.mkdir(exist_ok=True)
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = [*letters, *(f"{c}</w>" for c in letters), "th", "<|startoftext|>", "<|endoftext|>"]
    (text / "vocab.json").write_text(json.dumps({t: n for n, t in enumerate(tokens)}), encoding="utf-8")
    (text / "merges.txt").write_text("#version: 0.2\nt h\n", encoding="utf-8")
    tokenizer = CLIPTokenizer(str(text / "vocab.json"), str(text / "merges.txt"), model_max_length=77)
    unet = UNet2DConditionModel(
        sample_size=64, cross_attention_dim=192, attention_head_dim=8, block_out_channels=(64, 128, 256, 256)
    )
    encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=49408, hidden_size=192, intermediate_size=768, num_hidden_layers=12, num_attention_heads=12,
            eos_token_id=len(tokens) - 1, bos_token_id=len(tokens) - 2,
        )
    )  # fmt: skip
    StableDiffusionPipeline(
        vae=_autoencoder(AutoencoderKL, (32, 64, 128, 128), 1), text_encoder=encoder, tokenizer=tokenizer, unet=unet,
        scheduler=DDPMScheduler(beta_schedule="scaled_linear"), safety_checker=None, feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)  # fmt: skip


def _autoencoder(kind, channels: tuple[int, ...], layers: int):  # type: ignore[no-untyped-def]
    down, up = ("DownEncoderBlock2D",) * len(channels), ("UpDecoderBlock2D",) * len(channels)
    return kind(
        down_block_types=down, up_block_types=up, block_out_channels=channels, layers_per_block=layers,
        latent_channels=4, sample_size=256,
    )  # fmt: skip


def make(root: Path) -> None:
    """Make all of them."""
    for fill in (llama, bert, autoencoder, diffusion):
        fill(root)


if __name__ == "__main__":
    make(Path(sys.argv[1]))

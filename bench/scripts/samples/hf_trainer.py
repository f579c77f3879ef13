"""Train a Transformer of Hugging Face with its Trainer: python hf_trainer.py bert|gpt2|t5|llama|vit [--args ...]."""

import argparse

import torch
import transformers
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("name", nargs="?", default="bert")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()

small = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4}
if args.name == "bert":
    config = transformers.BertConfig(**small, intermediate_size=1024)
    model = transformers.BertForSequenceClassification(config)
elif args.name == "gpt2":
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4))
elif args.name == "t5":
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(num_layers=2, d_model=256, num_heads=4, decoder_start_token_id=0)
    )
elif args.name == "llama":
    config = transformers.LlamaConfig(**small, intermediate_size=688, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config)
else:
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**small, intermediate_size=1024))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, at):
        if args.name == "vit":
            return {"pixel_values": torch.randn(3, 224, 224), "labels": at % 2}
        tokens = torch.randint(5, 1000, (128,))
        return {"input_ids": tokens, "labels": at % 2 if args.name == "bert" else tokens}


arguments = TrainingArguments(
    "out",
    per_device_train_batch_size=args.batch,
    gradient_accumulation_steps=args.accumulate,
    gradient_checkpointing=args.checkpointing,
    bf16=True,
    num_train_epochs=1,
    dataloader_num_workers=2,
    report_to="none",
    logging_steps=1,
)
Trainer(model=model, args=arguments, train_dataset=Data()).train()

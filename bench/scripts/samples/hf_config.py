"""A model of a config.json on disk, in a plain loop in fp32: python hf_config.py FOLDER [--batch 8] [--length 128]."""

import argparse

import torch
import transformers

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=128)
args = parser.parse_args()

config = transformers.AutoConfig.from_pretrained(args.folder)
config.use_cache = False
model = getattr(transformers, config.architectures[0])(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(6):
    tokens = torch.randint(0, 1000, (args.batch, args.length)).cuda()
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

"""A model through torch.compile, in a plain loop: python compiled_loop.py resnet|gpt2."""

import sys

import torch
import torchvision
import transformers
from torch import nn


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_layer=4, n_embd=512, n_head=8, vocab_size=8192, use_cache=False)
        )

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits


if "gpt2" in sys.argv:
    model, given = Gpt2(), torch.randint(0, 8192, (8, 512))
    targets = given.reshape(-1)
else:
    model, given, targets = torchvision.models.resnet18(), torch.randn(64, 3, 224, 224), torch.arange(64)
model = torch.compile(model.cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(6):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        scores = model(given.cuda())
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

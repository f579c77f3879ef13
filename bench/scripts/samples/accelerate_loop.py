"""Hugging Face Accelerate's loop around a plain model."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(784, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(4000, 784), torch.randint(0, 10, (4000,))), 256, shuffle=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for image, label in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(image), label)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print(accelerator.gather(loss).mean().item())
accelerator.save_state("state")

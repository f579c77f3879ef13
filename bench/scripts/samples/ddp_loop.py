"""DistributedDataParallel, as its tutorial has it: torchrun --standalone --nproc-per-node 2 ddp_loop.py [--views]."""

import os
import sys

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
data = TensorDataset(torch.randn(128, 3, 224, 224), torch.randint(0, 1000, (128,)))
loader = DataLoader(data, 16, sampler=DistributedSampler(data))
model = torchvision.models.resnet50().to(local_rank)
model = DistributedDataParallel(model, device_ids=[local_rank], gradient_as_bucket_view="--views" in sys.argv)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    for image, label in loader:
        image, label = image.to(local_rank), label.to(local_rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(image), label)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(loss.item())
dist.destroy_process_group()

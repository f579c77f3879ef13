"""Fine-tune a torchvision network, as its manual has it: python torchvision_resnet.py NAME --batch 32 [--amp]."""

import argparse

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms

parser = argparse.ArgumentParser()
parser.add_argument("name", nargs="?", default="resnet18")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = torchvision.datasets.FakeData(1000, (3, 224, 224), 1000, transforms.ToTensor())
loader = DataLoader(data, args.batch, shuffle=True, num_workers=4, pin_memory=True)
model = torchvision.models.get_model(args.name, weights=None).to(device)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
for epoch in range(2):
    model.train()
    for image, target in loader:
        image, target = image.to(device), target.to(device)
        with torch.amp.autocast("cuda", enabled=args.amp):
            output = model(image)
            loss = criterion(output, target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        print(loss.item(), (output.topk(5)[1] == target[:, None]).any(1).float().mean().item())
    schedule.step()
    torch.save(model.state_dict(), "checkpoint.pth")

"""Train a timm network with timm's own optimizer, mixup, EMA and scheduler: python timm_train.py NAME --batch 16."""

import argparse

import timm
import torch
from timm.data import Mixup, create_dataset, create_loader, resolve_data_config
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV2, NativeScaler
from torchvision.datasets import FakeData
from torchvision.transforms import ToTensor

parser = argparse.ArgumentParser()
parser.add_argument("name", nargs="?", default="vit_tiny_patch16_224")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--opt", default="adamw")
args = parser.parse_args()

device = torch.device("cuda")
model = timm.create_model(args.name, pretrained=False, num_classes=100, drop_path_rate=0.1).to(device)
assert resolve_data_config({}, model=model) and create_dataset and create_loader
loader = torch.utils.data.DataLoader(FakeData(500, (3, 224, 224), 100, ToTensor()), args.batch, num_workers=2)
optimizer = create_optimizer_v2(model, opt=args.opt, lr=1e-3, weight_decay=0.05)
scheduler = CosineLRScheduler(optimizer, t_initial=10)
ema = ModelEmaV2(model, decay=0.999)
mixup, criterion, scaler, meter = (
    Mixup(0.8, num_classes=100),
    SoftTargetCrossEntropy(),
    NativeScaler(),
    AverageMeter(),
)
for epoch in range(2):
    model.train()
    for image, target in loader:
        image, target = mixup(image.to(device), target.to(device))
        with torch.autocast("cuda"):
            loss = criterion(model(image), target)
        optimizer.zero_grad()
        scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        torch.cuda.synchronize()
        ema.update(model)
        meter.update(loss.item(), image.size(0))
    scheduler.step(epoch + 1)

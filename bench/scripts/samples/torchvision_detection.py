"""Train a torchvision detector on made-up boxes."""

import torch
import torchvision

device = torch.device("cuda")
model = torchvision.models.detection.fasterrcnn_resnet50_fpn(
    weights=None, weights_backbone=None, num_classes=5
)
model.to(device).train()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.005, momentum=0.9)
for _ in range(5):
    images = [torch.rand(3, 320, 320).to(device) for _ in range(2)]
    box = torch.tensor([[10.0, 10.0, 100.0, 100.0], [50.0, 60.0, 200.0, 210.0]])
    targets = [{"boxes": box.to(device), "labels": torch.tensor([1, 2]).to(device)} for _ in images]
    losses = model(images, targets)
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

"""A LightningModule with its own training_step and configure_optimizers: python lightning_module.py [PRECISION]."""

import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 64))
        self.decoder = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 784))

    def training_step(self, batch, index):
        (image,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(image)), image)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(batch[0])), batch[0]))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


data = DataLoader(TensorDataset(torch.randn(4000, 784)), 128, num_workers=2)
precision = sys.argv[1] if len(sys.argv) > 1 else "32-true"
trainer = lightning.Trainer(max_epochs=2, accelerator="gpu", devices=1, precision=precision)
trainer.fit(Autoencoder(), data, data)

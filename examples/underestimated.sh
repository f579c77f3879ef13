#!/bin/bash
#SBATCH --job-name=grows
#SBATCH --gpus=1
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
# The summary shows a small model; the program's own cache grows far beyond it.
#RAD model=models/resnet18_cifar_torchsummary.txt batch_size=128 optimizer=sgd
python3 fake_train.py --memory 1G,1.2G,1.5G,1.8G,2.2G,2.7G,3.3G,4G,38G --seconds 10 --smact 0.25

#!/bin/bash
#SBATCH --job-name=resnet18
#SBATCH --gpus=1
#SBATCH --output=%x-%j.out
#RAD model=models/resnet18_torchinfo.txt batch_size=64 optimizer=adam precision=fp32
python3 fake_train.py --memory 2.2G --seconds 8 --smact 0.20

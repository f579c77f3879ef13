#!/bin/bash
#SBATCH --job-name=two-gpus
#SBATCH --gres=gpu:2
#SBATCH --output=%x-%j.out
#RAD model=models/resnet50_torchinfo.txt batch_size=64
python3 fake_train.py --memory 7G --seconds 5 --smact 0.90

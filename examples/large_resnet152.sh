#!/bin/bash
#SBATCH --job-name=resnet152
#SBATCH --gpus-per-node=1
#SBATCH --output=%x-%j.out
#RAD model=models/resnet152_torchinfo.txt batch_size=64 optimizer=adam
python3 fake_train.py --memory 11G,13G --seconds 8 --smact 0.85

#!/bin/bash
#SBATCH --job-name=encoder
#SBATCH --gres=gpu:1
#SBATCH --output=%x-%j.out
#RAD model=models/encoder12_torchinfo.txt batch_size=16 seq_len=128 optimizer=adamw
python3 fake_train.py --memory 4.3G --seconds 8 --smact 0.35

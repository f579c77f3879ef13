#!/bin/bash
#SBATCH --job-name=broken
#SBATCH --gpus=1
#SBATCH --output=%x-%j.out
#RAD model=models/broken.txt batch_size=64
python3 fake_train.py --memory 3G --seconds 4

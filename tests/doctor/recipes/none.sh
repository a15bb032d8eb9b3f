#!/bin/sh
export WANDB_PROJECT=futures
python train.py

"""Beside t06_references.py."""
import errno
import os

import torch


def mkdir(path):
    try:
        os.makedirs(path)
    except OSError as e:
        if e.errno != errno.EEXIST:
            raise


def save_on_master(*args, **kwargs):
    torch.save(*args, **kwargs)

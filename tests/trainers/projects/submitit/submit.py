"""Submit train.py with submitit's local executor, and wait for it."""

import sys

import submitit
from train import train

executor = submitit.AutoExecutor(folder="jobs", cluster="local")
executor.update_parameters(timeout_min=30)
job = executor.submit(train)
print("submitted", job.job_id, flush=True)
print("steps", job.result())

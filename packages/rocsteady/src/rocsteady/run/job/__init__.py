"""What the user wants done: the job file, its stages and variants, when it is done, and trust."""

FILE = "rocsteady.toml"  # a job, beside the script

"""Linux and WSL2: a command below its keeper, and its end."""

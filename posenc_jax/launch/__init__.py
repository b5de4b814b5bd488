"""Where the points of a sweep run: this machine, W&B agents, cloud TPUs, a Slurm cluster."""

AGAIN = 75  # what a run leaves with after SIGTERM: start it again and it goes on

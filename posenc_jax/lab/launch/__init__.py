"""Runs the points of a sweep: on this machine, by W&B agents, on cloud TPUs or a Slurm cluster."""

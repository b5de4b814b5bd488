"""Runs the points of a sweep: on this machine, by W&B agents, on cloud TPUs or a Slurm cluster."""

from posenc_jax.lab.hosts.exit_status import Interrupted

RESTART_STATUS = Interrupted.status  # exit status of a run that can be resumed

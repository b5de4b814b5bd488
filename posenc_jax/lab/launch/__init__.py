"""Where the points of a sweep run: this machine, W&B agents, cloud TPUs, a Slurm cluster."""

from posenc_jax.lab.hosts.exit_status import Interrupted

AGAIN = Interrupted.status  # a run that left with it is to be started again, and goes on

"""Writes a sweep as a Slurm job array: a file of commands, and the script that runs them."""

import shlex
import sys
from pathlib import Path

from posenc_jax.lab.config.sweeps import Sweep
from posenc_jax.lab.hosts.exit_status import Interrupted

SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}{limit}
#SBATCH --output={folder}/%x-%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@120
# Time, memory, partition and accelerators: give them to sbatch, or add lines here.
cd {root} || exit 1
command=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {commands})
srun bash -c "exec $command"
status=$?
if [ $status -eq {again} ]; then scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"; fi
exit $status
"""


def files(sweep: Sweep, folder: Path, root: Path, at_once: int = 0) -> dict[Path, str]:
    """Returns FOLDER/commands.txt and FOLDER/slurm.sh, which sbatch takes, with their texts.

    The jobs use this Python. At most `at_once` of them run at a time; 0: as many as Slurm starts.

    Raises:
      ValueError: at_once is negative.
    """
    if at_once < 0:
        raise ValueError(f"--at-once: {at_once} is negative; 0 is no limit")
    folder = folder.resolve()
    commands = folder / "commands.txt"
    python = [sys.executable]
    lines = [shlex.join(python + sweep.command(p, folder / p.name)) for p in sweep.points]
    script = SCRIPT.format(
        name=sweep.name,
        last=len(lines) - 1,
        limit=f"%{at_once}" if at_once else "",
        folder=shlex.quote(str(folder)),
        root=shlex.quote(str(root)),
        commands=shlex.quote(str(commands)),
        again=Interrupted.status,
    )
    return {commands: "".join(f"{line}\n" for line in lines), folder / "slurm.sh": script}

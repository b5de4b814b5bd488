"""Writes a sweep as a Slurm job array: a file of commands, and the script that runs them."""

import shlex
from pathlib import Path

from posenc_jax.lab.config.sweeps import Sweep
from posenc_jax.lab.hosts.exit_status import Interrupted

SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
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


def write(sweep: Sweep, folder: Path, root: Path) -> Path:
    """Writes FOLDER/commands.txt and FOLDER/slurm.sh; returns the script, which sbatch takes."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    commands = folder / "commands.txt"
    lines = [
        shlex.join(["python", *sweep.command(point, folder / point.name)]) for point in sweep.points
    ]
    commands.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    script = folder / "slurm.sh"
    script.write_text(
        SCRIPT.format(
            name=sweep.name,
            last=len(lines) - 1,
            folder=shlex.quote(str(folder)),
            root=shlex.quote(str(root)),
            commands=shlex.quote(str(commands)),
            again=Interrupted.status,
        ),
        "utf-8",
    )
    return script

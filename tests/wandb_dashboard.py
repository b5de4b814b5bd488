"""Draws what W&B would show of a run, from what was sent: `python -m tests.wandb_dashboard PNG`.

It trains three encodings with three seeds each, in a few minutes, mirrored in a W&B server on this
machine; then each panel shows one key of all W&B runs that have it, a line a run, in the color of
`config.encoding`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from posenc_jax.lab.report import drawing
from tests.support import ROOT
from tests.support.wandb_server import FakeWandb, environment

FLAGS = (
    "--config.encoding.name=rope,alibi,nope", "--config.seeds=3", "--config.eval.variants=()",
    "--config.train.steps=240", "--config.train.chunk=10", "--config.train.warmup=20",
    "--config.eval.lengths=(32,64,128,256)", "--config.wandb.mode=online",
)  # fmt: skip
# Key -> its axis, and whether that is logarithmic.
PANELS = {
    "train/loss": ("step", False),
    "valid/loss": ("step", False),
    "by_length/bits_per_byte": ("length", True),
    "by_position/bits_per_byte/256": ("position", True),
    "train/tokens_per_second": ("step", False),
    "train/grad_norm": ("step", False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("png", type=Path)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, FakeWandb() as server:
        workdir = Path(folder, "run")
        command = [sys.executable, "train.py", "--config=configs/rope_extrap.py:quick",
                   f"--workdir={workdir}", *FLAGS]  # fmt: skip
        env = {**os.environ, **environment(workdir, server), "MPLCONFIGDIR": folder}
        subprocess.run(command, cwd=ROOT, env=env, check=True)
        runs = list(server.runs.values())
    with drawing.styled("wandb"):
        draw(runs).savefig(flags.png, dpi=110)
    Image.open(flags.png).convert("RGB").quantize(64).save(flags.png, optimize=True)


def draw(runs: Sequence[Mapping[str, Any]]) -> Figure:
    """A panel for each key, with a line for each W&B run that has it."""
    trainings = [run for run in runs if run["job_type"] == "training"]
    styles = drawing.line_styles(
        list(dict.fromkeys(run["config"]["encoding"] for run in trainings))
    )
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    for axes, (key, how) in zip(figure.subplots(2, 3).flat, PANELS.items(), strict=True):
        panel(axes, key, runs, styles, *how)
    handles = {style["color"]: name for name, style in styles.items()}
    lines = [axes.plot([], [], color=color, label=name)[0] for color, name in handles.items()]
    figure.legend(handles=lines, loc="outside upper center", ncols=len(lines), frameon=False)
    return figure


def panel(axes: Axes, key: str, runs, styles, axis: str, log_x: bool) -> None:
    """All runs that have the key, as W&B draws them: the report is one, if it has it."""
    for run in runs:
        points = [(row[axis], row[key]) for row in run["history"] if key in row]
        if points:
            style = styles[run["config"]["encoding"]]
            axes.plot(*zip(*points, strict=True), color=style["color"], linewidth=1.1, alpha=0.8)
    axes.set_title(key, loc="left", fontsize="medium")
    axes.set_xlabel(axis)
    if log_x:
        axes.set_xscale("symlog" if axis == "position" else "log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:,g}")


if __name__ == "__main__":
    main()

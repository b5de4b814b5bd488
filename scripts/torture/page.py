"""docs/reliability.md: what is guaranteed, and the figures of one run of `make torture`."""

import datetime
import os
import platform
from collections.abc import Mapping
from pathlib import Path

import jax

from scripts.torture.shown import Shown

BEGIN, END = "<!-- figures: make torture -->", "<!-- end of figures -->"


def write(path: Path, shown: Mapping[str, Shown], seconds: float) -> None:
    """Puts the figures between their marks; the text around them is written by hand."""
    before, _, rest = path.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{figures(shown, seconds)}\n{END}{after}", "utf-8")


def figures(shown: Mapping[str, Shown], seconds: float) -> str:
    """The table, how it was tried, and what went wrong, as Markdown."""
    lines = ["| what | good | control | found |", "|---|---|---|---|"]
    lines += [
        f"| {one.what} | {one.good} of {one.tried} | {one.control} | {one.control_found} of "
        f"{one.control_tried} |"
        for one in shown.values()
    ]
    lines += ["", f"{_machine()}, {seconds / 60:.0f} minutes.", ""]
    lines += [
        f"- **{name}**: {one.settings}" + (f". {one.figures}" if one.figures else "")
        for name, one in shown.items()
    ]
    bad = [f"- {name}: {line}" for name, one in shown.items() for line in one.bad]
    return "\n".join([*lines, *(["", "What went wrong:", "", *bad] if bad else [])]) + "\n"


def _machine() -> str:
    today = datetime.date.today().isoformat()
    cores = len(os.sched_getaffinity(0))
    return (
        f"Made by `make torture` on {today}: Python {platform.python_version()}, JAX "
        f"{jax.__version__}, {cores} cores of {jax.devices()[0].device_kind}"
    )

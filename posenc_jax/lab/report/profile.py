"""The tables of where the time of training steps went, if a run was profiled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.files import read_object
from posenc_jax.lab.report.sections import Grid, Section

SMALL = 0.005  # of all time: parts with less are one row


def sections(path: Path) -> list[Section]:
    """The section of the run in this folder, with a table for each profiled training; or none."""
    notes = {at.parent.name: read_object(at) for at in sorted(path.glob("profile/*/parts.json"))}
    tables = [_table(name, note) for name, note in notes.items()]
    said = (
        "Milliseconds that a step of all seeds spends in each part of the model, all its layers "
        "together. Parts that run side by side count each. The traces are in the folder `profile`."
    )
    return [Section("Where time goes", [said, *tables])] if tables else []


def _table(name: str, note: Mapping[str, Any]) -> Grid:
    parts, steps = [tuple(part) for part in note["parts"]], note["steps"]
    total = sum(forward + backward for _, forward, backward in parts)
    large = [part for part in parts if sum(part[1:]) >= SMALL * total]
    rest = [part[1:] for part in parts if part not in large]
    if rest:
        large.append((f"{len(rest)} smaller ones", *map(sum, zip(*rest, strict=True))))
    ms = lambda seconds: f"{1e3 * seconds / steps:.3g}"
    rows = [
        [part, ms(forward), ms(backward), f"{100 * (forward + backward) / total:.1f}"]
        for part, forward, backward in large
    ]
    caption = f"{name}: {steps} steps traced, {1e3 * note['seconds'] / steps:.3g} ms each"
    return Grid(["part", "forward\nms", "backward\nms", "share\n%"], rows, caption)

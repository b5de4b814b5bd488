"""Writes the results of checks into docs/reliability.md, between two marks; the rest is by hand.

A result is a row of the table and a note that says how, when and where the check was run. It
replaces the check's earlier result.
"""

import datetime
import platform
import re
from collections.abc import Iterable
from pathlib import Path

import jax

from posenc_jax.lab.hosts.devices import cores
from posenc_jax.lab.hosts.files import write_text
from scripts.torture.check_result import CheckResult

BEGIN, END = "<!-- figures: make torture -->", "<!-- end of figures -->"
MOST_FAILURES = 20
HEAD = "| check | what | good | control | found |\n|---|---|---|---|---|\n"


def write(path: Path, name: str, shown: CheckResult, seconds: float, order: Iterable[str]) -> None:
    """Writes one check's result between the marks; the rows are in the order of the names."""
    before, _, rest = path.read_text("utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    kept = _parts(old) | {name: (_row(name, shown), _note(name, shown, seconds))}
    found = [kept[each] for each in order if each in kept]
    rows, notes = ("".join(part) for part in zip(*found, strict=True))
    text = f"{before}{BEGIN}\n\n{HEAD}{rows}\n{notes}\n{END}{after}"
    write_text(path, text)


def _parts(text: str) -> dict[str, tuple[str, str]]:
    """Returns the row and the note of each check in the text between the marks."""
    rows = {match[1]: match[0] for match in re.finditer(r"^\| (\S+) \|.*\n", text, re.M)}
    notes = {
        match[1]: match[0] for match in re.finditer(r"^- \*\*(.+?)\*\*.*\n(?:  .*\n)*", text, re.M)
    }
    return {name: (rows[name], notes[name]) for name in rows if name in notes}


def _row(name: str, shown: CheckResult) -> str:
    return f"| {name} | {shown.what} | {shown.good} | {shown.control} | {shown.found} |\n"


def _note(name: str, shown: CheckResult, seconds: float) -> str:
    said = ". ".join(part for part in (shown.settings, shown.figures) if part)
    failures = [" ".join(line.split()) for line in shown.failures[:MOST_FAILURES]]
    wrong = "".join(f"  - went wrong: {line}\n" for line in failures)
    command = f"`python -m scripts.torture --only={name}`"
    where = (
        f"{datetime.date.today()}, Python {platform.python_version()}, JAX {jax.__version__}, "
        f"{len(cores())} cores of {jax.devices()[0].device_kind} ({platform.machine()})"
    )
    return f"- **{name}**: {said}. {command}, {where}, {seconds:.0f} s.\n{wrong}"

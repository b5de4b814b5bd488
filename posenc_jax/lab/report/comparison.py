"""Compares many runs on one interactive HTML page that needs no network."""

import json
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from posenc_jax.lab import runs
from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.report import merging
from posenc_jax.lab.report.webpage import html_page

HERE = Path(__file__).parent
SCRIPTS = ("chart.js", "comparison.js")
RAW = ("report.html", "config.json", "metrics.jsonl", "summary.json")


def compare(workdirs: Sequence[str | Path], path: Path, title: str) -> dict[str, Any]:
    """Writes the page about finished runs to `path`; returns the data that it shows.

    Raises:
      ValueError: no folder given, one given twice, or one that holds no finished run.
    """
    if not workdirs:
        raise ValueError("workdir: none given; a comparison takes one finished run or more")
    folders = [Path(workdir).resolve() for workdir in workdirs]
    if len(set(folders)) < len(folders):
        raise ValueError("workdir: the same folder is given twice")
    merged = merging.merge([runs.read(folder) for folder in folders], names(folders))
    for run, folder in zip(merged["runs"], folders, strict=True):
        there = [name for name in RAW if (folder / name).is_file()]
        base = Path(os.path.relpath(folder, path.resolve().parent)).as_posix()
        run["links"] = [[name, f"{base}/{name}"] for name in there]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, html(merged, title))
    return merged


def names(folders: Sequence[Path]) -> list[str]:
    """Returns the shortest ends of the paths that are all different."""
    for depth in range(1, max(len(folder.parts) for folder in folders) + 1):
        found = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(found)) == len(found):
            return found
    raise ValueError("workdir: the same folder is given twice")


def html(merged: dict[str, Any], title: str) -> str:
    """Returns the page. Text from the runs is data, which the script never reads as HTML."""
    data = json.dumps(merged, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c")  # so that the data cannot close its element
    style = (HERE / "comparison.css").read_text("utf-8")
    script = "".join((HERE / name).read_text("utf-8") for name in SCRIPTS)
    body = f"""<header><h1>{escape(title)}</h1><p class="muted" id="lead"></p></header>
<main id="main"><noscript><p>This page needs its own script. Allow scripts, or read the raw records
of the runs.</p></noscript></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>"""
    return html_page(title, body, allowed="script-src 'unsafe-inline'", style=style)

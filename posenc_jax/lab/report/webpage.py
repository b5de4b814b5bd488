"""The report of a run as one HTML file without external resources; all texts are escaped."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.report import plots, vector
from posenc_jax.lab.report.sections import Cell, Grid, Picture, Section
from posenc_jax.lab.report.vector import CSS
from posenc_jax.lab.runs import StoredRun

# The least pixels of a figure's width for each of its points: its letters have 8, and one of
# `drawing.WIDTH` is whole on a phone. A wider one is scrolled.
NARROWEST = 0.76


def write(run: StoredRun, lead: str, sections: Sequence[Section]) -> Path:
    """Draws the figures and writes report.html in the run's folder; returns the page's path.

    Args:
      run: its command, config and environment are shown after the sections.
      lead: the line under the title.
      sections: in order.
    """
    title = str(run.config.get("experiment", "run")).replace("_", " ")
    title = title[:1].upper() + title[1:]
    if task := run.config.get("task", {}).get("name"):
        title += f": {task}"
    shown = [_section(section, run.path / "figures") for section in sections]
    body = f"""<header>
<h1>{escape(title)}</h1>
<p class="muted">{escape(lead)}</p>
</header>
<main>
{"".join(shown)}{_about(run)}</main>"""
    path = run.path / "report.html"
    write_text(path, html_page(title, body, allowed="img-src data:"))
    return path


def html_page(title: str, body: str, allowed: str, style: str = "") -> str:
    """Returns a whole page around `body`, which is HTML.

    Args:
      title: as text.
      body: what is inside the element body.
      allowed: what the content security policy allows besides inline styles.
      style: CSS after that of all pages.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; {allowed}">
<title>{escape(title)}</title>
<style>{CSS}{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _section(section: Section, folder: Path) -> str:
    content = "".join(_part(part, folder) for part in section.parts)
    return (folded if section.folded else _titled)(section.title, content)


def _part(part: str | Grid | Picture | Section, folder: Path) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Grid):
        return _table(part)
    if isinstance(part, Section):
        return _section(part, folder)
    _, svg = plots.save(folder, part.name, part.draw)
    drawn = inline(part.name, svg.read_text("utf-8"), part.caption)
    return f"<figure>{drawn}<figcaption>{escape(part.caption)}</figcaption></figure>"


def _table(grid: Grid) -> str:
    """Returns a table that scrolls by itself if it is wider than the page."""
    kind = ' class="words"' if grid.words else ""
    notes, caption = grid.notes(), escape(grid.caption)
    head = "".join(f'<th scope="col"{kind}>{_head(column)}</th>' for column in grid.columns)
    body = f"<tbody{kind}>{_rows(grid.rows, notes)}</tbody>"
    if grid.below:
        body += f'<tbody class="muted">{_rows(grid.below, notes)}</tbody>'
    below = (f"<p><small>{i}. {escape(note)}</small></p>" for note, i in notes.items())
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}"><table>'
        f"<caption>{caption}</caption>"
        f"<thead><tr>{head}</tr></thead>{body}</table></div>{''.join(below)}"
    )


def _head(column: str) -> str:
    first, _, second = escape(column).partition("\n")
    return first + (f"<br><small>{second}</small>" if second.strip() else "")


def _rows(rows: Iterable[Sequence[str | Cell]], notes: Mapping[str, int]) -> str:
    return "".join(
        f'<tr><th scope="row">{_cell(name, notes)}</th>'
        f"<td>{'</td><td>'.join(_cell(cell, notes) for cell in cells)}</td></tr>"
        for name, *cells in rows
    )


def _cell(cell: str | Cell, notes: Mapping[str, int]) -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    text = escape(cell.text).replace("\n", "<br>")
    text = f"<b>{text}</b>" if cell.bold else text
    text = f'<span class="muted">{text}</span>' if cell.muted else text
    mark = f"<sup>{notes[cell.note]}</sup>" if cell.note else ""
    half = f" <small>{escape(cell.half)}</small>" if cell.half else ""
    return text + mark + half


def inline(name: str, svg: str, caption: str) -> str:
    """Returns Matplotlib's SVG for use in a page: no links, unique ids, the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="0 0 ([\d.]+) [^"]*"', svg)
    size = f'{box[0]} style="min-width: {float(box[1]) * NARROWEST:.0f}px"' if box else ""
    opening = f'<svg {size} role="img" aria-label="{escape(caption)}">'
    svg = opening + svg[svg.index(">") + 1 :]
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#|url\(#', lambda found: f"{found.group()}{name}-", svg)
    return vector.recoloured(svg)


def _about(run: StoredRun) -> str:
    """Returns how to repeat the run, its facts, its config and its environment."""
    command, commit = (run.environment.get(name) for name in ("command", "commit"))
    again = facts = ""
    if command:
        at = f" at commit <code>{escape(commit)}</code>" if commit else ""
        again = f"<p>To run it again{at}:</p><pre><code>{escape(command)}</code></pre>"
    if run.summary.facts:
        facts = pairs(_flat(run.summary.facts))
    config = escape(json.dumps(run.config, indent=2, ensure_ascii=False))
    settings = folded("Configuration", f"<pre><code>{config}</code></pre>")
    environment = folded("Environment", pairs(_flat(run.environment)))
    files = "<p>The folder of the run has the tables as CSV and LaTeX, in <code>tables</code>.</p>"
    return _titled("The run", again + files + facts) + _titled(
        "Configuration and machine", settings + environment
    )


def _flat(values: Mapping) -> Iterator[tuple[str, str]]:
    """Yields nested values as pairs such as ("corpus.bytes", "12345678")."""
    for name, value in dotted(values).items():
        if value is not None:
            yield name, value if isinstance(value, str) else json.dumps(value)


def pairs(values: Iterable[tuple[str, str]]) -> str:
    """Returns a list of names and values."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values)
    return f"<dl>{rows}</dl>"


def _titled(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>\n"


def folded(title: str, content: str) -> str:
    """Returns content, which is HTML, that opens on a click."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"

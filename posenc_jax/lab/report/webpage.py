"""The report of a run as one HTML file without external resources."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from posenc_jax.lab import runs
from posenc_jax.lab.hosts.files import write_text
from posenc_jax.lab.report import drawing, plots, summaries
from posenc_jax.lab.report.page_css import CSS
from posenc_jax.lab.report.statistics import Interval
from posenc_jax.lab.runs import StoredRun

CAPTIONS = {
    "by_length": "The metric at each test length: lines are means over seeds, dots are seeds, "
    f"bands 95% t intervals of {drawing.BAND_SEEDS} seeds or more. The dotted line is the longest "
    "length in training. Dashed lines are baselines.",
    "by_position": "The metric at each place in the window, one panel for each test length. "
    f"Bands are 95% t intervals of {drawing.BAND_SEEDS} seeds or more. The dotted line is "
    "the last position in training.",
    "training": "The training loss at each step.",
}


def page(workdir: str | Path) -> Path:
    """Draws the figures, writes workdir/report.html and returns its path.

    Raises:
      ValueError: the folder holds no finished run.
    """
    run = runs.read(workdir)
    path = run.path / "report.html"
    write_text(path, html(run))
    return path


def html(run: StoredRun) -> str:
    """Returns the page; all text from the run is escaped."""
    drawn = [path for path in plots.figures(run.path) if path.suffix == ".svg"]
    return document(run, _subtitle(run), [
        section("Results", _how_read(run.summary), _results(run.summary), _every_seed(run.summary),
                _differences(run)),
        section("Figures", *(figure(path, CAPTIONS[path.stem]) for path in drawn)),
    ])  # fmt: skip


def document(run: StoredRun, lead: str, sections: Sequence[str]) -> str:
    """Returns a page about a run.

    Args:
      run: its command, config and environment are shown after the sections.
      lead: the line under the title, as text.
      sections: as HTML.
    """
    title = _title(run.config)
    sections = [
        *sections,
        section("The run", _command(run), _facts(run.summary.get("facts", {}))),
        section("Configuration and machine", _config(run.config),
                folded("Environment", _pairs(_shown(run.environment)))),
    ]  # fmt: skip
    body = f"""<header>
<h1>{escape(title)}</h1>
<p class="muted">{escape(lead)}</p>
</header>
<main>
{"".join(sections)}
</main>"""
    return html_page(title, body, allowed="img-src data:")


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


def _title(config: Mapping) -> str:
    experiment = str(config.get("experiment", "run")).replace("_", " ")
    task = _at(config, "task", "name")
    return f"{experiment[:1].upper()}{experiment[1:]}" + (f": {task}" if task else "")


def _subtitle(run: StoredRun) -> str:
    summary, count = run.summary, summaries.seed_count(run.summary)
    facts = [
        ", ".join(summaries.encodings(summary)),
        f"trained at length {summary['train_length']}",
        f"{count} seed{'s' if count > 1 else ''}",
        str(run.environment.get("started", ""))[:10],
    ]
    return " · ".join(fact for fact in facts if fact)


def _how_read(summary: Mapping) -> str:
    trained, metric = summary["train_length"], summaries.label(summary["metric"])
    better = summary["metric_better"]
    parts = [
        f"Each row is an encoding, each column a length that the same weights were tested at. They "
        f"were trained at length {trained}; the columns to its right are extrapolation. A cell is "
        f"{metric}, {better} is better. The best mean in each column is bold; ties at the printed "
        "precision are all bold.",
        "One seed was run, so there is no interval and no claim about other seeds."
        if summaries.seed_count(summary) == 1
        else "The number after a mean is half the width of its 95% t interval over seeds.",
    ]
    if summary["baselines"]:
        parts.append("Baselines do not depend on the length.")
    return "".join(f"<p>{escape(part)}</p>" for part in parts)


def _results(summary: Mapping) -> str:
    notes = summaries.notes(summary)
    rows = [
        (encoding, [_cell(cell, notes) for cell in row.values()])
        for encoding, row in summaries.cells(summary).items()
    ]
    base = [
        (name, [escape(summaries.number(value))] * len(summaries.lengths(summary)))
        for name, value in summary["baselines"].items()
    ]
    below = "".join(f"<p><small>{i}. {escape(note)}</small></p>" for note, i in notes.items())
    return _table(summary, summaries.reading_note(summary), rows, base) + below


def _cell(cell: summaries.Cell, notes: Mapping[str, int]) -> str:
    value = f"<b>{escape(cell.value)}</b>" if cell.best else escape(cell.value)
    if cell.value == summaries.NOT_MEASURED:
        value = f'<span class="muted">{value}</span>'
    half = f" <small>{escape(cell.half)}</small>" if cell.half else ""
    mark = f"<sup>{notes[cell.note]}</sup>" if cell.note else ""
    return value + mark + half


def _every_seed(summary: Mapping) -> str:
    rows = [
        (encoding, ["<br>".join(cell.seeds) or cell.value for cell in row.values()])
        for encoding, row in summaries.cells(summary).items()
    ]
    caption = f"{summaries.label(summary['metric'])} of every seed, in the order of the seeds"
    return folded("Every seed", _table(summary, caption, rows))


def _differences(run: StoredRun) -> str:
    found = summaries.differences(run.records, run.summary["metric"])
    if not found or summaries.seed_count(run.summary) < 2:
        return ""
    first = summaries.encodings(run.summary)[0]
    lengths = summaries.lengths(run.summary)
    rows = [(e, [_difference(row.get(n)) for n in lengths]) for e, row in found.items()]
    count = sum(len(row) for row in found.values())
    caption = (
        f"{summaries.label(run.summary['metric'])} minus that of {first}, paired by seed. "
        f"Intervals hold at 95% for all {count} comparisons together (Bonferroni); "
        "bold: 0 lies outside."
    )
    return folded(f"Difference from {first}", _table(run.summary, caption, rows))


def _difference(difference: Interval | None) -> str:
    if difference is None:
        return "—"
    mean, low, high, _ = difference
    if low is None or high is None:
        return escape(summaries.number(mean))
    text = f"{'+' if mean > 0 else ''}{summaries.number(mean)}".replace("-", "−")
    clear = f"<b>{text}</b>" if low > 0 or high < 0 else text
    return f"{clear} <small>±{summaries.number(mean - low)}</small>"


def _table(
    summary: Mapping,
    caption: str,
    rows: Iterable[tuple[str, list[str]]],
    below: Iterable[tuple[str, list[str]]] = (),
) -> str:
    """Returns a table by encoding and length; the cells are HTML, all else text."""
    trained = summary["train_length"]
    head = "".join(
        f'<th scope="col">{length}<br><small>{summaries.length_ratio(length, trained)}</small></th>'
        for length in summaries.lengths(summary)
    )
    body = "".join(f"<tbody{kind}>{_rows(part)}</tbody>" for kind, part in (
        ("", rows), (' class="muted"', below)))  # fmt: skip
    return _wide(caption, f'<th scope="col">length</th>{head}', body)


def _wide(caption: str, head: str, body: str) -> str:
    """Returns a table that scrolls by itself if it is wider than the page."""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>{body}</table></div>"
    )


def _rows(rows: Iterable[tuple[str, list[str]]]) -> str:
    return "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{"</td><td>".join(cells)}</td></tr>'
        for name, cells in rows
    )


def grid(
    columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str, words: bool = False
) -> str:
    """Returns a table of texts; see `sections.Grid`."""
    kind = ' class="words"' if words else ""
    head = "".join(f'<th scope="col"{kind}>{escape(column)}</th>' for column in columns)
    body = _rows((row[0], [escape(cell) for cell in row[1:]]) for row in rows)
    return _wide(caption, head, f"<tbody{kind}>{body}</tbody>")


def figure(path: Path, caption: str) -> str:
    """Returns an SVG file as part of the page, with its caption."""
    drawn = inline(path.stem, path.read_text("utf-8"), caption)
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def inline(name: str, svg: str, caption: str) -> str:
    """Returns Matplotlib's SVG for use in a page: no links, unique ids, the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', svg)
    opening = f'<svg {box.group() if box else ""} role="img" aria-label="{escape(caption)}">'
    svg = opening + svg[svg.index(">") + 1 :]
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#|url\(#', lambda found: f"{found.group()}{name}-", svg)
    for variable, color in drawing.PALETTE.items():
        svg = svg.replace(color, f"var(--{variable})")
    return svg


def _command(run: StoredRun) -> str:
    command = run.environment.get("command")
    commit = run.environment.get("commit")
    if not command:
        return ""
    at = f" at commit <code>{escape(commit)}</code>" if commit else ""
    return f"<p>To run it again{at}:</p><pre><code>{escape(command)}</code></pre>"


def _facts(facts: Mapping) -> str:
    return _pairs(_shown(facts)) if facts else ""


def _config(config: Mapping) -> str:
    text = json.dumps(config, indent=2, ensure_ascii=False)
    return folded("Configuration", f"<pre><code>{escape(text)}</code></pre>")


def _shown(values: Mapping, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yields nested values as pairs such as ("corpus.bytes", "12345678")."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _shown(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl>{rows}</dl>"


def section(title: str, *parts: str) -> str:
    """Returns parts, which are HTML, under a heading."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>\n"


def folded(title: str, content: str) -> str:
    """Returns content, which is HTML, that opens on a click."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _at(config: Mapping, *names: str) -> Any:
    for name in names:
        config = config.get(name, {}) if isinstance(config, Mapping) else {}
    return config or None

"""The pages of the site that have everything that was measured, and its tables as files."""

import json
from collections.abc import Sequence
from pathlib import Path

from experiments.claims.decisions import Finding, findings
from experiments.claims.entries import load
from experiments.claims.page import markdown
from posenc_jax.lab import runs
from posenc_jax.lab.report import Section, document, tables, vector
from posenc_jax.lab.runs import StoredRun
from scripts import bench
from scripts.gpu import page as gpu

DOCS = Path(__file__).parents[2] / "docs"


def pages(
    name: str, stored: Sequence[StoredRun], said: Sequence[str], sections: Sequence[Section]
) -> dict[str, str | bytes]:
    """Returns path -> content of the page of an experiment, of its tables as CSV and LaTeX, and of
    the figures that the page in docs/ does not have.

    said, sections: as `experiments.document` returns them.
    """
    drawn = {path.stem for path in (DOCS / name).glob("*.svg")}
    figure = lambda stem: f"../{name}/{stem}.svg" if stem in drawn else f"{name}/{stem}.svg"
    pages: dict[str, str | bytes] = {
        f"results/{name}.md": document.whole(name, stored, said, sections, figure)
    }
    for picture in document.pictures(sections):
        if picture.name not in drawn:
            drawn_file = vector.file(picture.name, picture.draw)
            pages[f"results/{name}/{picture.name}.svg"] = drawn_file
    for stem, grid in tables.named(sections).items():
        pages[f"results/{name}/{stem}.csv"] = tables.as_csv(grid)
        pages[f"results/{name}/{stem}.tex"] = tables.as_latex(grid)
    return pages


def other_pages(results: Path) -> dict[str, str]:
    """Returns path -> text of the pages of the claims and of what was timed."""
    link = lambda file: f"[results/{file}](../source/results/{file})"
    claims, timed = ledger(results / "claims.tar.xz"), {"benchmarks": bench.page, "gpu": gpu.page}
    pages = {"results/claims.md": markdown(claims, "../claims", link("claims.tar.xz"))}
    for name, page in timed.items():
        raw = json.loads((results / f"{name}.json").read_text("utf-8"))
        pages[f"results/{name}.md"] = page(raw, link(f"{name}.json"))
    return pages


def ledger(archive: Path) -> list[Finding]:
    """Returns the claims of an archive with their verdicts."""
    with runs.unpacked(archive) as folder:
        return findings(load(*sorted(folder.iterdir())))

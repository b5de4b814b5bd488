"""Draws the catalogue: a card for each method, a page of all cards, and a table of all methods."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jax

from posenc_jax.encodings import CATALOG, card
from posenc_jax.lab.gallery import cards, costs, encodings_table, page
from posenc_jax.lab.hosts.devices import cores

__all__ = ["catalogue", "gallery"]


def gallery(names: Sequence[str], out: Path) -> Iterator[str]:
    """Writes out/NAME.png for each method, index.html and README.md; yields each name when drawn.

    Cards of other methods of the catalogue in the folder stay, on its pages too. The folder changes
    when all given cards are drawn; before, it stays as it is.

    Raises:
      ValueError: no such method.
    """
    names, index = [card(name).name for name in names], out / "index.html"
    pictures, drawn = {}, {}
    for name, png, svg in _drawn(names):
        pictures[name], drawn[name] = png, page.figure(name, svg)
        yield name
    out.mkdir(parents=True, exist_ok=True)
    known = (page.figures(index.read_text("utf-8")) if index.exists() else {}) | drawn
    known = {name: known[name] for name in CATALOG if name in known}
    for old in out.glob("*.png"):
        if old.stem not in known:
            old.unlink()
    for name, png in pictures.items():
        (out / f"{name}.png").write_bytes(png)
    index.write_text(page.html(known), "utf-8")
    (out / "README.md").write_text(page.readme(known), "utf-8")


def catalogue(path: Path) -> Iterator[str]:
    """Writes the table of all methods; yields each name when its cost is counted."""
    measured = {}
    for name in CATALOG:
        measured[name] = costs.cost(name)
        yield name
    path.write_text(encodings_table.markdown(measured, costs.base()), "utf-8")


def _drawn(names: Sequence[str]) -> Iterator[tuple[str, bytes, str]]:
    if (count := min(len(cores()), len(names), 4)) == 1:
        yield from map(_draw, names)
        return
    # JAX does not work after a fork, and processes cannot share an accelerator.
    with ProcessPoolExecutor(count, get_context("spawn"), _use_cpu) as pool:
        yield from pool.map(_draw, names)


def _use_cpu() -> None:
    jax.config.update("jax_platforms", "cpu")


def _draw(name: str) -> tuple[str, bytes, str]:
    drawn = cards.panels(name)
    return name, cards.png(name, drawn), cards.svg(name, drawn)

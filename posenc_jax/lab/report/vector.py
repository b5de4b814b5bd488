"""Matplotlib's SVG: made small, in the colours of the pages, and as a file of its own."""

import io
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from posenc_jax.lab.report import drawing

CSS = Path(__file__).with_name("page.css").read_text("utf-8")
# The variables of a light and of a dark page, which stand before all rules of page.css.
SCHEMES = re.sub(r"/\*.*?\*/\s*", "", CSS.partition("* {")[0], flags=re.DOTALL)
OFTEN = 10  # elements
# A file brings no font. Verdana has the widths of DejaVu Sans, which Matplotlib lays texts out for.
FONTS = "'DejaVu Sans', Verdana, sans-serif"


def file(name: str, draw: Callable[[], Figure]) -> str:
    """Returns a figure as an SVG file that is light or dark as the reader's system is.

    Args:
      name: seeds the ids in the file.
      draw: is called with the style of all figures.
    """
    buffer = io.BytesIO()
    with drawing.styled(name):
        draw().savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue().decode(), flags=re.DOTALL)
    return standalone(_with_classes(compact(svg)))


def standalone(svg: str) -> str:
    """Returns an SVG as a file of its own, with the colours of a light and of a dark page."""
    style = f"{SCHEMES}svg {{ background: var(--page); font-family: {FONTS}; }}"
    return recoloured(svg).replace('<style type="text/css">', f'<style type="text/css">{style}\n')


def _with_classes(svg: str) -> str:
    """Returns an SVG whose styles of more than OFTEN elements are classes: half the bytes."""
    counts = Counter(re.findall(r'style="([^"]*)"', svg))
    classes = {style: f"s{i}" for i, (style, n) in enumerate(counts.items()) if n > OFTEN}
    for style, name in classes.items():
        svg = svg.replace(f'style="{style}"', f'class="{name}"')
    rules = "".join(f".{name} {{ {style} }}\n" for style, name in classes.items())
    return svg.replace('<style type="text/css">', f'<style type="text/css">{rules}', 1)


def recoloured(svg: str) -> str:
    """Returns an SVG with the palette's colours replaced by the variables of page.css."""
    for variable, color in drawing.PALETTE.items():
        svg = svg.replace(color, f"var(--{variable})")
    return svg


def compact(svg: str) -> str:
    """Returns an SVG with lengths to a tenth of a point, and without what nothing uses."""
    tenths = lambda lengths: re.sub(r"(?<=\d\.\d)\d+", "", lengths[0])
    svg = re.sub(r' (?:d|x|y|transform)="[^"]*"', tenths, svg)
    # Ids that nothing uses, some of them twice, and rotations by 0.
    svg = re.sub(r' id="([\w.]+_\d+|image\w+)"| transform="rotate\(-0 [^\"]*"', "", svg)
    return re.sub(r"\s*\n\s*", "\n", svg).replace("font-family: 'DejaVu Sans'; ", "")

"""Draws the catalogue: a card for each method, and one page of all cards.

    python scripts/gallery.py             # all methods, into docs/gallery
    python scripts/gallery.py rope alibi  # these again; the other cards stay

Methods that learn are trained first, so that all of them take about a quarter of an hour on two
cores. Writes NAME.png, README.md, and index.html, which opens without a network. An unknown name is
refused in one line, with exit status 2.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax import CATALOG
from posenc_jax.lab.gallery import gallery

DOCS = Path(__file__).parents[1] / "docs" / "gallery"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if a name is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="methods; all by default")
    parser.add_argument("--out", type=Path, default=DOCS, metavar="DIR", help="docs/gallery")
    chosen = parser.parse_args(arguments)
    try:
        for name in gallery(chosen.names or list(CATALOG), chosen.out):
            print(name, flush=True)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"page: {chosen.out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

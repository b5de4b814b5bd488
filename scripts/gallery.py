"""Draws the catalogue: a card for each method, and one page of all cards.

    python scripts/gallery.py                          # all methods, into docs/gallery
    python scripts/gallery.py rope alibi --out=/tmp/g  # some

Writes NAME.png, README.md, and index.html, which opens without a network. An unknown name is
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
    parser.add_argument("--out", type=Path, metavar="DIR", help="docs/gallery for all methods")
    chosen = parser.parse_args(arguments)
    if chosen.names and chosen.out is None:
        parser.error("--out: give a folder; docs/gallery holds all methods")
    out = chosen.out or DOCS
    try:
        for name in gallery(chosen.names or list(CATALOG), out):
            print(name, flush=True)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"page: {out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

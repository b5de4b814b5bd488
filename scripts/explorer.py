"""Makes docs/explorer.html: choose methods, move their options, see what each does.

    python scripts/explorer.py                                      # all methods; 10 to 20 minutes
    python scripts/explorer.py rope alibi --out=/tmp/explorer.html  # some

The page is one file that opens without a network. An unknown name is refused in one line, with exit
status 2.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import jax

from posenc_jax import CATALOG
from posenc_jax.lab.gallery.explorer import explorer

DOCS = Path(__file__).parents[1] / "docs" / "explorer.html"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if a name is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="methods; all by default")
    parser.add_argument("--out", type=Path, metavar="FILE", help="docs/explorer.html for all")
    chosen = parser.parse_args(arguments)
    if chosen.names and chosen.out is None:
        parser.error("--out: give a file; docs/explorer.html holds all methods")
    out = chosen.out or DOCS
    jax.config.update("jax_platforms", "cpu")
    try:
        for name in explorer(chosen.names or list(CATALOG), out):
            print(name, flush=True)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"page: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

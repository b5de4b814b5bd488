"""Makes docs/explorer.html: choose methods, move their options, see what each does.

    python scripts/explorer.py             # all methods; 10 to 20 minutes
    python scripts/explorer.py rope alibi  # these again; the others stay as they are

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
from posenc_jax.lab.gallery.points import ABSENT

DOCS = Path(__file__).parents[1] / "docs" / "explorer.html"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if a name is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="methods; all by default")
    parser.add_argument("--out", type=Path, default=DOCS, metavar="FILE", help="docs/explorer.html")
    chosen = parser.parse_args(arguments)
    out, drawable = chosen.out, [name for name in CATALOG if name not in ABSENT]
    jax.config.update("jax_platforms", "cpu")
    try:
        for name in explorer(chosen.names or drawable, out):
            print(name, flush=True)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"page: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

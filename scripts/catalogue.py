"""Writes docs/encodings.md: every method with its formula, hooks, parameters and cost.

python scripts/catalogue.py
python scripts/catalogue.py --out=/tmp/encodings.md
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import jax

from posenc_jax.lab.gallery import catalogue

DOCS = Path(__file__).parents[1] / "docs" / "encodings.md"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="FILE", default=DOCS)
    out = parser.parse_args(arguments).out
    # XLA counts operations, so the costs do not depend on the machine, only on the backend.
    jax.config.update("jax_platforms", "cpu")
    for name in catalogue(out):
        print(name, flush=True)
    print(f"table: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

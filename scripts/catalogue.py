"""Measures what the site shows of each method: its card, the explorer's numbers, its cost.

    python scripts/catalogue.py             # the whole catalogue; half an hour on two cores
    python scripts/catalogue.py rope alibi  # these again; the others stay as they are

Writes results/catalogue.tar.xz, after each method, from which `make site` builds the gallery, the
explorer and the table of methods. A new method needs no entry: the site measures what the archive
lacks. An unknown name is refused in one line, with exit status 2.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import jax

from posenc_jax.encodings import CATALOG, card
from posenc_jax.lab.gallery import store
from posenc_jax.lab.hosts.exit_status import one_line
from posenc_jax.lab.hosts.files import check_writable
from posenc_jax.lab.hosts.flags import Flags

ARCHIVE = Path(__file__).parents[1] / "results" / "catalogue.tar.xz"


@one_line
def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 if a name is refused."""
    parser = Flags(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="methods; all by default")
    parser.add_argument(
        "--out", type=Flags.path, default=ARCHIVE, metavar="FILE", help="the archive"
    )
    flags = parser.parse_args(arguments)
    jax.config.update("jax_platforms", "cpu")
    try:
        names = [card(name).name for name in flags.names or CATALOG]
        check_writable(flags.out.parent)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    measured = store.read_archive(flags.out) if flags.out.exists() else {}
    for name, measurement in store.measure_all(names):
        print(name, flush=True)
        measured[name] = measurement
        store.pack(flags.out, {name: measured[name] for name in CATALOG if name in measured})
    print(f"archive: {flags.out} ({flags.out.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

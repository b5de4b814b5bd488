"""What the site shows of each method, measured once and kept on disk.

To measure all methods takes half an hour on two cores. results/catalogue.tar.xz has them: a folder
a method, with the files of FILES. A method that it lacks, or has with other options, is measured
when the site is built.
"""

import datetime
import json
import platform
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import jax

from posenc_jax.encodings import CATALOG, card
from posenc_jax.lab import runs
from posenc_jax.lab.gallery import cards, costs, explorer, points, trained
from posenc_jax.lab.gallery.costs import Cost
from posenc_jax.lab.hosts.devices import cores

FILES = ("card.svg", "explorer.bin", "attention.bin", "method.json")


class Measured(NamedTuple):
    """What was measured of a method.

    card: the drawing of its card, SVG.
    points: the numbers that the explorer shows, see `explorer.encoded`; b"": it is not there.
    maps: attention of a trained model, see `explorer.encoded_maps`; b"": none was trained.
    shape: [layers, heads, queries] of the maps; () without them.
    cost: operations and bytes of a layer with the method, see `costs.counted`.
    declared: as `declared` returned when it was measured.
    made: the date, and with which JAX, device and Python.
    """

    card: str
    points: bytes
    maps: bytes
    shape: tuple[int, ...]
    cost: Cost
    declared: str
    made: str


def declared(name: str) -> str:
    """Returns the options of a method, their defaults, and the values that the explorer offers:
    what was measured with another text is not of this method any more.
    """
    offered = {} if name in points.ABSENT else points.knobs(name)
    return f"{card(name).beyond} {card(name).defaults} {offered}"


def measure(name: str) -> Measured:
    """Measures one method; those of `trained.METHODS` are trained for their maps."""
    maps, shape = b"", ()
    if name in trained.METHODS:
        maps, shape = explorer.encoded_maps(trained.maps(name))
    return Measured(
        cards.svg(name, cards.panels(name)),
        b"" if name in points.ABSENT else explorer.encoded(explorer.measured(name)),
        maps, shape, costs.counted(name), declared(name),
        f"{datetime.date.today()} with JAX {jax.__version__} for a "
        f"{jax.devices()[0].device_kind}, Python {platform.python_version()}",
    )  # fmt: skip


def measure_all(names: Sequence[str]) -> Iterator[tuple[str, Measured]]:
    """Yields each method with what was measured of it, in their order; on all cores."""
    if (count := min(len(cores()), len(names), 4)) < 2:
        yield from ((name, measure(name)) for name in names)
        return
    # JAX does not work after a fork, and processes cannot share an accelerator.
    with ProcessPoolExecutor(count, get_context("spawn"), _use_cpu) as pool:
        yield from zip(names, pool.map(measure, names), strict=True)


def _use_cpu() -> None:
    jax.config.update("jax_platforms", "cpu")


def save(folder: Path, name: str, found: Measured) -> None:
    """Writes what was measured of a method into a folder of its name."""
    own = folder / name
    own.mkdir(parents=True, exist_ok=True)
    facts = {"shape": found.shape, **found.cost._asdict(), "declared": found.declared,
             "made": found.made}  # fmt: skip
    (own / "card.svg").write_text(found.card, "utf-8")
    (own / "explorer.bin").write_bytes(found.points)
    (own / "attention.bin").write_bytes(found.maps)
    (own / "method.json").write_text(json.dumps(facts) + "\n", "utf-8")


def read(folder: Path) -> dict[str, Measured]:
    """Returns the methods of the catalogue that a folder has as they are declared now."""
    found = {}
    for name in CATALOG:
        own = folder / name
        if not (own / "method.json").exists():
            continue
        facts = json.loads((own / "method.json").read_text("utf-8"))
        if facts["declared"] == declared(name):
            found[name] = Measured(
                (own / "card.svg").read_text("utf-8"),
                (own / "explorer.bin").read_bytes(),
                (own / "attention.bin").read_bytes(),
                tuple(facts["shape"]),
                Cost(*(facts[field] for field in Cost._fields)),
                facts["declared"],
                facts["made"],
            )
    return found


def read_archive(path: Path) -> dict[str, Measured]:
    """Returns what `read` does, of an archive."""
    with runs.unpacked(path) as folder:
        return read(folder)


def pack(path: Path, measured: dict[str, Measured]) -> None:
    """Writes an archive of these methods."""
    with tempfile.TemporaryDirectory() as folder:
        for name, found in measured.items():
            save(Path(folder), name, found)
        runs.pack(path, [Path(folder, name) for name in measured], [*measured], FILES)


def catalogue(archive: Path, folder: Path) -> dict[str, Measured]:
    """Returns all methods of the catalogue, in its order.

    Those that the archive lacks are measured, about 20 seconds each, and kept in the folder, where
    the next call finds them.
    """
    found = read(folder) | read_archive(archive)
    for name, own in measure_all([name for name in CATALOG if name not in found]):
        print(f"measured {name}", flush=True)
        save(folder, name, own)
        found[name] = own
    return {name: found[name] for name in CATALOG}

"""Measurements of each method for the site, kept on disk.

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
from posenc_jax.lab.gallery import cards, costs, explorer, option_grid, trained
from posenc_jax.lab.gallery.costs import Cost
from posenc_jax.lab.hosts.devices import cores

FILES = ("card.svg", "explorer.bin", "attention.bin", "method.json")


class Measured(NamedTuple):
    """The measurements of a method.

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
    measurements with another text are outdated.
    """
    offered = {} if name in option_grid.ABSENT else option_grid.knobs(name)
    return f"{card(name).beyond} {card(name).defaults} {offered}"


def measure(name: str) -> Measured:
    """Measures one method; methods of `trained.METHODS` are trained for their maps."""
    maps, shape = b"", ()
    if name in trained.METHODS:
        maps, shape = explorer.encoded_maps(trained.maps(name))
    return Measured(
        cards.svg(name, cards.panels(name)),
        b"" if name in option_grid.ABSENT else explorer.encoded(explorer.measured(name)),
        maps, shape, costs.counted(name), declared(name),
        f"{datetime.date.today()} with JAX {jax.__version__} for a "
        f"{jax.devices()[0].device_kind}, Python {platform.python_version()}",
    )  # fmt: skip


def measure_all(names: Sequence[str]) -> Iterator[tuple[str, Measured]]:
    """Yields (name, measurements) for each method, in order; measures on all cores."""
    if (count := min(len(cores()), len(names), 4)) < 2:
        yield from ((name, measure(name)) for name in names)
        return
    # JAX does not work after a fork, and processes cannot share an accelerator.
    with ProcessPoolExecutor(count, get_context("spawn"), _use_cpu) as pool:
        yield from zip(names, pool.map(measure, names), strict=True)


def _use_cpu() -> None:
    """Makes a worker use the CPU alone."""
    jax.config.update("jax_platforms", "cpu")


def save(folder: Path, name: str, measured: Measured) -> None:
    """Writes the measurements of a method into a folder of its name."""
    method_folder = folder / name
    method_folder.mkdir(parents=True, exist_ok=True)
    facts = {"shape": measured.shape, **measured.cost._asdict(), "declared": measured.declared,
             "made": measured.made}  # fmt: skip
    (method_folder / "card.svg").write_text(measured.card, "utf-8")
    (method_folder / "explorer.bin").write_bytes(measured.points)
    (method_folder / "attention.bin").write_bytes(measured.maps)
    (method_folder / "method.json").write_text(json.dumps(facts) + "\n", "utf-8")


def read(folder: Path) -> dict[str, Measured]:
    """Returns the measurements in a folder, of the methods that are still declared as they were
    measured.
    """
    by_name = {}
    for name in CATALOG:
        method_folder = folder / name
        if not (method_folder / "method.json").exists():
            continue
        facts = json.loads((method_folder / "method.json").read_text("utf-8"))
        if facts["declared"] == declared(name):
            by_name[name] = Measured(
                (method_folder / "card.svg").read_text("utf-8"),
                (method_folder / "explorer.bin").read_bytes(),
                (method_folder / "attention.bin").read_bytes(),
                tuple(facts["shape"]),
                Cost(*(facts[field] for field in Cost._fields)),
                facts["declared"],
                facts["made"],
            )
    return by_name


def read_archive(path: Path) -> dict[str, Measured]:
    """Returns what `read` does, from an archive."""
    with runs.unpacked(path) as folder:
        return read(folder)


def pack(path: Path, measured: dict[str, Measured]) -> None:
    """Writes an archive of these methods."""
    with tempfile.TemporaryDirectory() as folder:
        for name, method in measured.items():
            save(Path(folder), name, method)
        runs.pack(path, [Path(folder, name) for name in measured], [*measured], FILES)


def catalogue(archive: Path, folder: Path) -> dict[str, Measured]:
    """Returns all methods of the catalogue, in its order.

    Those that the archive lacks are measured, about 20 seconds each, and kept in the folder, where
    the next call finds them.
    """
    by_name = read(folder) | read_archive(archive)
    for name, measured in measure_all([name for name in CATALOG if name not in by_name]):
        print(f"measured {name}", flush=True)
        save(folder, name, measured)
        by_name[name] = measured
    return {name: by_name[name] for name in CATALOG}

"""Proves what posenc_jax reads from the config of each model of transformers, and freezes it.

    python scripts/architectures.py                          # what another transformers changed
    python scripts/architectures.py --only=llama,gemma3_text # small models of these types
    python scripts/architectures.py --only=vit --pictures --write

It runs in an environment with torch, transformers and jax. Without --only it proves again what is
frozen, by every kind of proof, and tries types that are new. It prints which cases are not proved
any more, whose numbers are others, which shapes of tables and fields of default configs are new,
gone, renamed or have another value, and which types are new or gone.

A small random model of a type runs twice with the same weights: with its positions, and with its
rotations by 0. Attention gives zeros both times, so layers have the same input: queries and keys of
the second run are those before a rotation, and the logits of the first are what ours must equal.
Fields of positions keep the values of the type's default config, or are those of SETTINGS.

With --write it freezes under tests/goldens/huggingface what is proved: of each kind of proof
NAME.json, the small config and the error of ours, and NAME.npz, the arrays; and the default configs
of new types in types.json, of which the tests and the page know them.
"""

# pyright: reportMissingImports=false

import argparse
import functools
import json
import os
import pathlib
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # some default configs ask a host for another one

import torch
import transformers
from transformers import PretrainedConfig

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from goldens.config_changes import changes  # noqa: E402
from goldens.frozen import FOLDER, read, save  # noqa: E402
from goldens.small_models import SETTINGS, config_classes, defaults  # noqa: E402
from goldens.type_proofs import PROOFS, Rows, table_shapes  # noqa: E402

CLOSE, SEEN = 2e-5, 1e-3  # the largest error of ours; the least that a wrong config must differ
INNER = {"coarse_acoustics", "fine_acoustics", "semantic"}  # Bark's parts, which have no file
Classes = Mapping[str, type[PretrainedConfig]]


def stored(name: str) -> Any:
    """What NAME.json has."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def new_types(classes: Classes) -> list[str]:
    """The types of transformers that types.json does not have."""
    return sorted({*classes} - {*stored("types")} - INNER)


def prove(name: str, kinds: Iterable[str], classes: Classes, write: bool, trace: bool) -> None:
    """Proves types in one way, and prints what differs from what is frozen; freezes it."""
    kinds = [kind for kind in kinds if kind in classes]
    print(f"{name}: {len(kinds)} types", flush=True)
    before = {note["case"]: note for note in stored(name) if note["type"] in kinds}
    arrays = read(name)
    notes, files = [], {}
    for kind in kinds:
        for note, case_arrays in proved_rows(name, kind, classes[kind], trace):
            case = note["case"]
            keyed = {f"{case}/{key}": array for key, array in case_arrays.items()}
            good = note["error"] < CLOSE and note.get("control", 1) > SEEN
            line = f"{case:40} error {note['error']:.1e}"
            line += f" control {note['control']:.1e}" if "control" in note else ""
            line += "" if good else "  WRONG"
            if case in before and (names := other_arrays(keyed, arrays)):
                line += f"  other {', '.join(names)} than frozen"
            print(line, flush=True)
            if good:
                notes.append(note)
                files |= keyed
    now = {note["case"] for note in notes}
    print(f"{name}: {len(now)} cases proved, {len(before)} are frozen")
    print_names("not proved any more", before.keys() - now)
    print_names("proved for the first time", now - before.keys())
    if write:
        add_types(classes, {note["type"] for note in notes})
        freeze(name, notes, files, kinds)


def proved_rows(name: str, kind: str, cls: type[PretrainedConfig], trace: bool) -> Rows:
    """What one kind of proof notes of a type, in each of its settings; prints why it notes none."""
    settings = SETTINGS.get(kind, {}) if name == "proofs" else {}
    rows: Rows = []
    for setting, fields in {"": {}, **settings}.items():
        case = f"{kind} {setting}".strip()
        try:
            torch.manual_seed(0)  # some modules draw what is no parameter
            proved = PROOFS[name].rows(kind, cls, **fields)
        except Exception as error:  # of one type, by any code of transformers
            print(f"{case:40} {one_line(error)}", flush=True)
            if trace:
                traceback.print_exc()
            continue
        start = {"case": case, "version": transformers.__version__}
        rows += [(start | note, arrays) for note, arrays in proved]
    return rows


def other_arrays(now: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]) -> list[str]:
    """The last names of arrays that are not as close to those frozen as ours must be."""
    same = lambda a, b: a.shape == b.shape and np.allclose(a, b, rtol=CLOSE, atol=CLOSE)
    other = (key for key in now if key not in before or not same(now[key], before[key]))
    return sorted({key.rpartition("/")[2] for key in other})


def one_line(error: Exception) -> str:
    """The type of an error and the beginning of what it says."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {textwrap.shorten(text, 150)}"


def print_names(what: str, names: Iterable[str]) -> None:
    """Prints names in lines of a screen's width."""
    text = f"{what}: {', '.join(sorted(names)) or 'none'}"
    print(textwrap.fill(text, 100, subsequent_indent="    ", break_on_hyphens=False))


def freeze(
    name: str, notes: list[dict[str, Any]], files: dict[str, np.ndarray], kinds: list[str]
) -> None:
    """Writes what is proved, and what was before of other types than `kinds`."""
    kept = [note for note in stored(name) if note["type"] not in kinds]
    cases = {note["case"] for note in kept}
    arrays = {key: array for key, array in read(name).items() if key.split("/")[0] in cases}
    rows = sorted(kept + notes, key=lambda note: note["case"])
    lines = ",\n".join(json.dumps(note) for note in rows)
    (FOLDER / f"{name}.json").write_text(f"[\n{lines}\n]\n")
    save(name, arrays | files)


def each_of(kinds: Iterable[str], classes: Classes, function: Any) -> dict[str, Any]:
    """The function's value for the config class of each type that transformers has; prints why it
    has none.
    """
    values = {}
    for kind in kinds:
        if kind not in classes:
            continue
        try:
            values[kind] = function(classes[kind])
        except Exception as error:  # of one type, by any code of transformers
            print(f"{kind:40} {one_line(error)}", flush=True)
    return values


def print_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Prints in which fields, or shapes, the types of both differ."""
    for kind in (kind for kind in now if kind in before):
        for line in changes(before[kind], now[kind]):
            print(f"{kind:40} {line}", flush=True)


def compare_tables(kinds: Iterable[str], classes: Classes, write: bool) -> None:
    """Prints which shapes of tables of default models are others than those frozen."""
    before = stored("tables")
    shapes = each_of(kinds, classes, table_shapes)
    print(f"tables: those of {len(shapes)} types")
    print_changes(before, shapes)
    if write:
        merged = {kind: row for kind, row in {**before, **shapes}.items() if row}
        save_lines("tables", dict(sorted(merged.items())))


def compare_defaults(kinds: Iterable[str], classes: Classes, write: bool) -> None:
    """Prints how the default configs differ from those frozen, and which types are new or gone."""
    before = stored("types")
    now = each_of((kind for kind in kinds if kind in before), classes, defaults)
    print(f"fields: those of {len(now)} default configs")
    print_changes(before, now)
    print_names("new types", new_types(classes))
    print_names("types that are gone", {*before} - {*classes, *transformers.CONFIG_MAPPING})
    if write:
        save_lines("types", before | now, separators=(",", ":"))


def add_types(classes: Classes, proved: set[str]) -> None:
    """Adds the default configs of new types that are proved to types.json."""
    types = stored("types")
    types |= {kind: defaults(classes[kind]) for kind in proved & {*new_types(classes)}}
    save_lines("types", dict(sorted(types.items())), separators=(",", ":"))


def save_lines(name: str, rows: dict[str, Any], separators: tuple[str, str] = (", ", ": ")) -> None:
    """Writes a dictionary to a file of tests/goldens/huggingface, an entry a line."""
    dumped = functools.partial(json.dumps, separators=separators)
    lines = (f"{dumped(kind)}{separators[1]}{dumped(row)}" for kind, row in rows.items())
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def parsed_flags() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--only", default="", help="types, with commas between")
    kinds = flags.add_mutually_exclusive_group()
    for flag, name, what in (
        ("--input", "inputs", "what is added to tokens"),
        ("--pictures", "pictures", "what is added to patches"),
        ("--codes", "codes", "what is added to points and frames"),
        ("--outputs", "outputs", "attention that also turns its output, to tokens and blocks"),
        ("--scores", "scores", "attention with parameters of positions, or of patches"),
        ("--tables", "tables", "shapes of tables alone"),
        ("--fields", "fields", "changes of the default configs alone"),
    ):
        kinds.add_argument(flag, dest="kind", action="store_const", const=name, help=what)
    flags.add_argument("--trace", action="store_true", help="show where a type fails")
    flags.add_argument("--write", action="store_true", help="freeze what is proved")
    return flags


def main() -> None:
    flags = parsed_flags()
    arguments = flags.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    classes = config_classes()
    only = arguments.only.split(",") if arguments.only else []
    if absent := sorted({*only} - {*classes}):
        flags.error(f"--only: transformers {transformers.__version__} has no {', '.join(absent)}")
    print(f"transformers {transformers.__version__}", flush=True)
    everything = ["proofs", "fields"] if only else [*PROOFS, "tables", "fields"]
    for name in [arguments.kind] if arguments.kind else everything:
        if name in PROOFS:
            proof = PROOFS[name]
            if proof.types is not None and (absent := sorted({*only} - {*proof.types})):
                flags.error(f"--only: add a function for {', '.join(absent)} to {proof.place}")
            more = new_types(classes) if proof.types is None else proof.types
            again = {note["type"] for note in stored(name)} | {*more}
            prove(name, only or sorted(again), classes, arguments.write, arguments.trace)
        elif name == "tables":
            again = {*stored("tables"), *new_types(classes)}
            compare_tables(only or sorted(again), classes, arguments.write)
        else:
            compare_defaults(only or sorted(classes), classes, arguments.write)


if __name__ == "__main__":
    main()

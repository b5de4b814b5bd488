"""Sweeps as plain data: points with values of fields, made by grids, zips and products.

A config file describes its sweep in a second function:

    def get_sweep(argument=""):
        return sweeps.product(
            sweeps.grid({"encoding.name": ("rope", "alibi"), "seed": range(3)}),
            sweeps.zipped({"train.length": (32, 64), "train.batch": (32, 16)}),
        )

A description is a tuple of dictionaries {field: value}, so `+` joins two. `seed` is not a field of
a config: points that differ only in it are one run, which trains all its seeds in one program.
"""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.lab.config.searches import Search
from posenc_jax.lab.hosts.files import as_folder_name
from posenc_jax.options import FieldError

Description = tuple[dict[str, Any], ...]
LONGEST = 80  # characters of a point's name, which names a folder, a run and a job


def grid(fields: Mapping[str, Sequence]) -> Description:
    """Every combination of the fields' values; the last field changes fastest.

    FieldError: a field without values.
    """
    return product(*(zipped({field: values}) for field, values in fields.items()))


def zipped(fields: Mapping[str, Sequence]) -> Description:
    """One point with the first value of each field, one with the second values, and so on.

    ValueError: a field without values, or fields with different numbers of values.
    """
    for field, values in fields.items():
        if isinstance(values, str) or not len(values):
            raise FieldError(field, f"a sweep needs a sequence of values, not {values!r}")
    if len(set(map(len, fields.values()))) > 1:
        counts = ", ".join(f"{field} {len(values)}" for field, values in fields.items())
        raise ValueError(f"zipped: the fields must have equally many values, not {counts}")
    return tuple(dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True))


def product(*parts: Description) -> Description:
    """Every combination of the points of all parts; the last part changes fastest.

    FieldError: two parts give the same field.
    """
    points = []
    for chosen in itertools.product(*parts):
        fields = [field for part in chosen for field in part]
        if twice := {field for field in fields if fields.count(field) > 1}:
            raise FieldError(min(twice), "more than one part of a product gives it")
        points.append({field: value for part in chosen for field, value in part.items()})
    return tuple(points)


class Point(NamedTuple):
    """One run of a sweep.

    name: made of the values; valid as the name of a folder, a run and a job.
    overrides: {dotted field of the config: value}.
    """

    name: str
    overrides: dict[str, Any]


class Sweep(NamedTuple):
    """A config file as --config takes it, and its points; `name` is the W&B group of the runs.

    A search draws its trials while it runs: its one point has the fields that all of them share.
    """

    name: str
    config: str
    points: list[Point]
    search: Search | None = None

    def command(self, point: Point, workdir: str | Path) -> list[str]:
        """The command line of a point: train.py --config=... --workdir=... and its flags."""
        fields = [f"--config.{field}={text(value)}" for field, value in point.overrides.items()]
        return ["train.py", f"--config={self.config}", f"--workdir={workdir}", *fields]


def expand(description: Sequence[Mapping[str, Any]]) -> list[Point]:
    """The runs of a description, in its order; points that differ only in the seed are one run.

    ValueError: no points, a point given twice, or seeds that are not consecutive.
    """
    if not description:
        raise ValueError("sweep: no points")
    runs: dict[str, tuple[dict[str, Any], list]] = {}
    for point in description:
        fields = {field: value for field, value in point.items() if field != "seed"}
        key = ", ".join(f"{field}={fields[field]!r}" for field in sorted(fields))
        seeds = runs.setdefault(key, (fields, []))[1]
        if point.get("seed") in seeds:
            at = "" if "seed" not in point else f" with seed {point['seed']}"
            raise ValueError(f"sweep: the point {key or 'without fields'}{at} is given twice")
        seeds.append(point.get("seed"))
    points = [
        Point(_name(fields), fields | _seed_fields(key, fields, seeds))
        for key, (fields, seeds) in runs.items()
    ]
    names = [point.name for point in points]
    return [
        p._replace(name=_hash(p.name, p.overrides)) if names.count(p.name) > 1 else p
        for p in points
    ]


def resolve(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config, nested dictionaries, with the dotted fields set.

    FieldError: a name on the path of a field has no fields.
    """
    resolved = deepcopy(dict(config))
    for field, value in overrides.items():
        *path, last = field.split(".")
        here = resolved
        for name in path:
            here = here.get(name)
            if not isinstance(here, dict):
                raise FieldError(f"config.{field}", "no such field")
        here[last] = value
    return resolved


def dotted(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested dictionaries as {dotted field: value}."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        inside = isinstance(value, Mapping)
        fields |= dotted(value, f"{prefix}{name}.") if inside else {f"{prefix}{name}": value}
    return fields


def text(value: Any) -> str:
    """A value as the command line takes it: sequences as tuples, strings without quotes."""
    return value if isinstance(value, str) else repr(tuple(value) if _is_sequence(value) else value)


def _seed_fields(key: str, fields: Mapping, seeds: list) -> dict[str, int]:
    if seeds == [None]:
        return {}
    if None in seeds or max(seeds) - min(seeds) + 1 != len(seeds):
        shown = ", ".join("none" if seed is None else str(seed) for seed in seeds)
        raise ValueError(f"sweep: the seeds of {key or 'the point'} must be consecutive, as 0, "
                         f"1, 2 are; not {shown}")  # fmt: skip
    if clashing := [field for field in ("seeds", "first_seed") if field in fields]:
        raise FieldError(clashing[0], "seed sets the same seeds; use one of the two")
    return {"first_seed": min(seeds), "seeds": len(seeds)}


def _name(fields: Mapping[str, Any]) -> str:
    """The values joined by "-": a string as it is, "rope", others after their field, "lr0.001"."""
    lasts = [field.split(".")[-1] for field in fields]
    parts = []
    for (field, value), last in zip(fields.items(), lasts, strict=True):
        short = last if lasts.count(last) == 1 else field.replace(".", "-")
        shown = "x".join(map(str, value)) if _is_sequence(value) else str(value)
        parts.append(shown if isinstance(value, str) else f"{short}{shown}")
    name = as_folder_name("-".join(parts)) or "run"
    return name if len(name) <= LONGEST else _hash(name, fields)


def _hash(name: str, fields: Mapping) -> str:
    digest = hashlib.sha256(repr(sorted(fields.items())).encode()).hexdigest()
    return f"{name[: LONGEST - 9].rstrip('-.+')}-{digest[:8]}"


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)

"""Reads the sweep or the search that a config file describes, and checks every config of it."""

import ast
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import experiments
from posenc_jax.lab.config import imports, searches, sweeps
from posenc_jax.lab.config.searches import Search
from posenc_jax.lab.config.sweeps import Point, Sweep


def read(config: str, common: dict[str, Any]) -> tuple[Sweep, dict[str, Any]]:
    """Returns the sweep of a config file, and the checked config of every point by name; of a
    search one point, "shared", with the fields that all trials share.

    Args:
      config: PATH or PATH:ARGUMENT.
      common: dotted fields set for all points.

    Raises:
      ValueError: one line names the file, the point or the field, the value and the choices.
    """
    path, _, argument = config.partition(":")
    if not Path(path).is_file():
        raise ValueError(f"--config: no such file: {path}")
    imports.add_folder(Path(path).parent)
    module = runpy.run_path(path)
    if "get_sweep" not in module:
        raise ValueError(f"--config: {path} has no get_sweep(argument), which describes a sweep")
    name = "-".join([Path(path).stem, *argument.replace("+", "-").split(",")]).strip("-")
    base, points, configs = module["get_config"](argument).to_dict(), [], {}
    described = module["get_sweep"](argument)
    if isinstance(described, Search):
        drawn, listed = searches.check(described), [Point("shared", {})]
    else:
        drawn, listed = None, sweeps.expand(described)
    for point in listed:
        fields = {"wandb.group": name, **common, **point.overrides}
        configs[point.name] = checked(base, fields)
        points.append(Point(point.name, fields))
    for fields in searches.extremes(drawn) if drawn else ():
        checked(base, {**common, **fields})
    return Sweep(name, config, points, drawn), configs


def checked(base: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config with dotted fields set, with all defaults. ValueError: a wrong field."""
    return experiments.check(sweeps.resolve(base, fields)).model_dump()


def overrides(arguments: list[str]) -> dict[str, Any]:
    """Returns --config.FIELD=VALUE arguments as {field: value}. ValueError: another argument."""
    fields = {}
    for argument in arguments:
        field, equals, value = argument.partition("=")
        if not field.startswith("--config.") or not equals:
            raise ValueError(f"{argument}: not a flag; a field is set as --config.FIELD=VALUE")
        try:
            fields[field.removeprefix("--config.")] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            fields[field.removeprefix("--config.")] = value
    return fields

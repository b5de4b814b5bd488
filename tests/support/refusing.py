"""Configs by name with changed fields, and what they are refused for."""

import importlib
from typing import Any

import pytest

import experiments


def config_of(stem: str, argument: str = "quick", **changes: Any) -> dict[str, Any]:
    """The config of configs/STEM.py; `a__b` is the field a.b."""
    config = importlib.import_module(f"configs.{stem}").get_config(argument)
    config.update_from_flattened_dict({f.replace("__", "."): v for f, v in changes.items()})
    return config.to_dict()


def refused(config: dict[str, Any], changes: dict[str, Any], words: list[str]) -> None:
    """Checks that the changed config is refused in one line, which has these words."""
    for field, value in changes.items():
        *path, name = field.split(".")
        (config[path[0]] if path else config)[name] = value
    with pytest.raises(ValueError, match="config") as caught:
        experiments.check(config)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)

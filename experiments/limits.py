"""The section of a page on what its runs cannot show, made from their configs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.report import Section
from posenc_jax.lab.report.formats import counted, listed
from posenc_jax.lab.runs import StoredRun

TITLE = "What it does not show"


def with_section(
    sections: Sequence[Section], runs: Sequence[StoredRun], others: Sequence[str]
) -> list[Section]:
    """Returns the sections of a page with that on its limits after the last one that is not folded.

    others: sentences of the experiment's own, after those on models, training, seeds and tasks.
    """
    if not (lines := [*_of_configs([run.config for run in runs]), *others]):
        return [*sections]
    last = max((i for i, section in enumerate(sections) if not section.folded), default=-1)
    limits = Section(TITLE, [f"- {line}" for line in lines])
    return [*sections[: last + 1], limits, *sections[last + 1 :]]


def _of_configs(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns sentences on the sizes, budgets, seeds, tasks and options that were not measured."""
    parts = lambda name: [config[name] for config in configs if name in config]
    models = [m for m in parts("model") if "layers" in m and not m.get("checkpoint")]
    trained = [train for train in parts("train") if "layers" not in train and "steps" in train]
    lines = []
    if models:
        lines.append(f"Other models than {'; '.join(dict.fromkeys(map(_model, models)))}.")
    if trained and models:
        lines.append(f"Other budgets than {_budget(trained)}.")
    seeds = set(parts("seeds"))
    if seeds and seeds != {1}:
        lines.append(f"Differences that are too small for {_range(seeds)} seeds.")
    tasks = dict.fromkeys(task["name"] for task in parts("task"))
    if tasks:
        lines.append(f"Other tasks than {listed([*tasks], 'and')}.")
    if times := [t for config in configs if (t := _times(config)) > 1]:
        lines.append(f"Inputs beyond {_range(times)} times the size in training.")
    if any("name" in encoding for encoding in parts("encoding")):
        lines.append(_options(parts("encoding"), {*parts("options")}))
    return lines


def _model(model: Mapping[str, Any]) -> str:
    kind = model["kind"].replace("_", "-")
    article = "an" if kind[0] in "aeiou" else "a"
    heads = f"width {model['width']}, {counted(model['heads'], 'head')}"
    return f"{article} {kind} of {counted(model['layers'], 'layer')}, {heads}"


def _budget(trained: Sequence[Mapping[str, Any]]) -> str:
    rates = {rate for train in trained for rate in train.get("rates", [train.get("lr")])}
    steps, batch = (_range(train[field] for train in trained) for field in ("steps", "batch"))
    said = f"{steps} steps of {batch} examples"
    return said if None in rates else f"{said} at learning rate {_range(rates)}"


def _times(config: Mapping[str, Any]) -> float:
    """Returns the longest test length over the longest one in training; 0 if there are none."""
    values = dotted(config)
    if multiples := values.get("multiples"):
        return max(multiples)
    lengths, trained = values.get("eval.lengths"), values.get("train.length")
    return max(lengths) / trained if lengths and trained else 0.0


def _options(encodings: Sequence[Mapping[str, Any]], chosen: set[str]) -> str:
    """chosen: what chose the options that no config states: "library", "setting"."""
    values: dict[str, set[str]] = {}
    for encoding in encodings:
        for name, value in encoding.items():
            if name != "name":
                values.setdefault(name, set()).add(str(value))
    said = ", ".join(f"{name} {listed(sorted(options), 'and')}" for name, options in values.items())
    default = "each has " + ("what suits the setting" if chosen == {"setting"} else "its defaults")
    return f"Other options of the methods: {f'{default}, but for {said}' if said else default}."


def _range(values: Iterable[float]) -> str:
    """Returns "8", or "8 to 16" of different numbers."""
    ends = sorted({*values})
    return " to ".join(f"{value:,g}" if value >= 1 else f"{value:g}" for value in
                       dict.fromkeys((ends[0], ends[-1])))  # fmt: skip

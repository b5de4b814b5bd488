"""The help of train.py: its configs, the fields of a config, examples, and the time of a run."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posenc_jax.lab.config.sweeps import dotted

CONFIGS = Path(__file__).parents[1] / "configs"
MEASURED = Path(__file__).parents[1] / "results" / "times.json"  # by scripts/bench_configs.py
EXAMPLES = """\
  python train.py --config=configs/rope_extrap.py:quick                    a small variant
  python train.py --config=configs/extrap.py:alibi,fire                    these encodings
  python train.py --config=configs/rope_extrap.py --config.train.steps=200 one field changed
  python train.py --config=configs/rope_extrap.py --workdir=runs/mine      the folder of the run
  python train.py --config=configs/rope_extrap.py --help                   the fields of a config"""


def overview() -> str:
    """What train.py does, every config with its first sentence, and examples."""
    names = {f"configs/{path.name}": documented(path) for path in sorted(CONFIGS.glob("*.py"))}
    lines = [f"  {name:<33}{text.splitlines()[0]}" for name, text in names.items()
             if name != "configs/common.py"]  # fmt: skip
    return "\n".join(
        ["python train.py --config=PATH[:ARGUMENT] [--config.FIELD=VALUE ...] [--workdir=DIR]", "",
         "Configs:", *lines, "", "Examples:", EXAMPLES]
    )  # fmt: skip


def of_config(path: Path, config: Mapping[str, Any]) -> str:
    """What a config says of itself, and its fields with their values."""
    fields = (f"  --config.{name}={_written(value)}" for name, value in dotted(config).items())
    return "\n".join([documented(path), "", "Fields:", *fields])


def duration(path: Path, argument: str = "") -> str:
    """What is known of how long a config takes without changes, for the header of a run.

    Measured seconds of the variant, or of the quick one; else what the docstring says of the whole
    config, if anything.
    """
    measured = json.loads(MEASURED.read_text("utf-8")) if MEASURED.exists() else {}
    variant = "quick" if "quick" in argument.split(",") else argument
    told = ""
    if timing := measured.get(f"{path.stem}:{variant}".rstrip(":")):
        cores = timing["cores"]
        told = f"{timing['seconds']:.0f} s on {cores} free core{'s' * (cores > 1)}"
    elif variant != "quick":
        timed = re.compile(r"(?!`quick`).*\b[Tt]akes .*(second|minute|hour)")
        told = next(filter(timed.match, _sentences(documented(path))), "")
    if not told:
        return "time expected: not measured; what is left is shown as it runs"
    told = told.removeprefix("Takes ")
    return f"time expected if no field is changed: {told[0].lower()}{told[1:]}"


def documented(path: Path) -> str:
    """The docstring of a Python file, which is not run."""
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def _sentences(text: str) -> Iterator[str]:
    """The sentences of all paragraphs that are not indented, which commands are."""
    for paragraph in text.split("\n\n"):
        if not paragraph.startswith(" "):
            yield from re.split(r"(?<=\.)\s+", " ".join(paragraph.split()))


def _written(value: Any) -> str:
    if isinstance(value, tuple | list):
        return repr(tuple(value)).replace(" ", "")
    return str(value)

"""A run on disk: config.json, metrics.jsonl, summary.json. What is on disk is the truth.

A line of metrics.jsonl is one flat record: step, seed, encoding, split, length, metric, value, and
`position` (the first position of a bin) in by-position curves only. JSON has no NaN and no
infinity: a value that is not finite is written as null and read back as NaN, so a run that diverged
keeps its records. Metrics of wall-clock time have names that begin with "time/".
"""

import datetime
import importlib.metadata
import json
import math
import numbers
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from posenc_jax import mirror

SPLITS = ("train", "valid", "test")
FIELDS = ("step", "seed", "encoding", "split", "length", "metric", "value")
Record = dict[str, Any]


class Run:
    """The folder of one run, open for writing, and its mirror in W&B.

    Args:
      workdir: the run's folder; made where it does not exist.
      config: the resolved configuration, plain values in nested dictionaries.
      wandb: {"mode": "disabled" | "offline" | "online", "checkpoint": whether checkpoints go there,
        ...}; the other entries (project, group, ...) are arguments of `wandb.init`.

    Raises:
      ValueError: the folder holds another run, or the config a value JSON cannot hold.
    """

    def __init__(self, workdir: str | Path, config: Mapping, wandb: Mapping | None = None):
        self.path = Path(workdir)
        if "environment" in config:
            raise ValueError("config.environment: the name is taken by the record of the machine")
        content = {**plain("config", config), "environment": environment()}
        refuse_taken(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._facts: dict[str, Any] = {}
        self._metrics = (self.path / "metrics.jsonl").open("a", encoding="utf-8")
        _write(self.path / "config.json", content)
        self._mirror = mirror.start(self.path, content, wandb or {"mode": "disabled"})
        self._checkpoint = bool((wandb or {}).get("checkpoint"))

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._metrics.close()
        if kind is None and (self.path / "summary.json").is_file():
            self._mirror.publish(self.path, self.records(), self._checkpoint)
        self._mirror.finish(failed=kind is not None)

    def log(self, records: Iterable[Mapping]) -> None:
        """Appends records, all or none of them, and flushes.

        Raises:
          ValueError: a field missing, unknown or of the wrong type, by its name.
        """
        checked = [check(record) for record in records]
        lines = (json.dumps(plain("record", record), ensure_ascii=False) for record in checked)
        self._metrics.write("".join(line + "\n" for line in lines))
        self._metrics.flush()
        self._mirror.log(checked)

    def records(self) -> list[Record]:
        """All records so far, read back from disk."""
        return read_records(self.path / "metrics.jsonl")

    def fact(self, **facts: Any) -> None:
        """Keeps facts about the run (a corpus's hash, a count of compilations) for its summary."""
        self._facts.update({name: plain(f"fact.{name}", fact) for name, fact in facts.items()})

    def finish(self, summary: Mapping) -> dict:
        """Writes summary.json, with the facts, in one step; returns what it wrote."""
        content = plain("summary", summary)
        content["facts"] = {**self._facts, **content.get("facts", {})}
        _write(self.path / "summary.json", content)
        self._mirror.summarise(content)
        return content


class Stored(NamedTuple):
    """A finished run as read from its folder; `config` is without the environment."""

    path: Path
    config: dict
    environment: dict
    records: list[Record]
    summary: dict


def read(workdir: str | Path) -> Stored:
    """Reads a finished run; a last line that a kill cut short is left out.

    Raises:
      ValueError: no such run, one that has not ended, or a damaged line, by its number.
    """
    path = Path(workdir)
    for name in ("config.json", "metrics.jsonl", "summary.json"):
        if not (path / name).is_file():
            raise ValueError(f"workdir: {path} has no {name}; give the folder of a finished run")
    config = json.loads((path / "config.json").read_text("utf-8"))
    summary = json.loads((path / "summary.json").read_text("utf-8"))
    records = read_records(path / "metrics.jsonl")
    return Stored(path, config, config.pop("environment", {}), records, summary)


def finished(folders: Iterable[Path]) -> list[Path]:
    """The folders of runs; one that is none itself stands for the finished runs below it."""
    found = []
    for folder in folders:
        below = sorted(path.parent for path in folder.glob("**/summary.json"))
        found += [folder] if (folder / "config.json").is_file() or not below else below
    return found


def read_records(path: Path) -> list[Record]:
    """The records of a metrics.jsonl; a last line that a kill cut short is left out.

    Raises:
      ValueError: a damaged line, by its number.
    """
    *lines, _torn = path.read_text("utf-8").split("\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            records.append(check({**record, "value": _back(record["value"])}))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: line {number}: {error}") from None
    return records


def check(record: Mapping) -> Record:
    """The record with plain Python values in the order of FIELDS; `value` may be NaN.

    Raises:
      ValueError: a field missing, unknown or of the wrong type, by its name.
    """
    allowed = (*FIELDS, "position")
    for field in FIELDS:
        if field not in record:
            raise ValueError(f"record.{field}: missing; a record has {', '.join(FIELDS)}")
    for field in record:
        if field not in allowed:
            raise ValueError(f"record.{field}: unknown field; choices: {', '.join(allowed)}")
    checked: Record = {}
    for field in [field for field in allowed if field in record]:
        value = record[field]
        if field in ("encoding", "split", "metric"):
            if not isinstance(value, str) or not value:
                raise ValueError(f"record.{field}: {value!r} is not a name")
            checked[field] = value
        elif field == "value":
            checked[field] = float(_number(field, value, numbers.Real))
        else:
            checked[field] = int(_number(field, value, numbers.Integral))
            if checked[field] < (least := int(field == "length")):
                raise ValueError(f"record.{field}: {value} must be {least} or more")
    if checked["split"] not in SPLITS:
        raise ValueError(f"record.split: {checked['split']!r}; choices: {', '.join(SPLITS)}")
    return checked


def plain(field: str, value: Any) -> Any:
    """The value as JSON can hold it: tuples as lists, NaN and infinities as None.

    Raises:
      ValueError: something that is no number, text, list or dictionary, by its field.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(f"{field}.{key}", entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(f"{field}[{i}]", entry) for i, entry in enumerate(value)]
    if value is None or isinstance(value, str | bool):
        return value
    number = _scalar(value)
    if isinstance(number, bool):
        return number
    if isinstance(number, numbers.Integral):
        return int(number)
    if isinstance(number, numbers.Real):
        return float(number) if math.isfinite(number) else None
    raise ValueError(f"{field}: {type(value).__name__} cannot be written as JSON")


def environment() -> dict:
    """What the numbers depend on besides the config; no variable of the environment is read."""
    device = jax.devices()[0]
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy")},
        "platform": platform.platform(),
        "backend": device.platform,
        "device": device.device_kind,
        "devices": jax.device_count(),
        "cpus": os.cpu_count(),
        "random": str(jax.random.key_impl(jax.random.key(0))),
    }


def refuse_taken(path: str | Path) -> None:
    """ValueError: the folder holds a run already, or a config.json that is not ours.

    A run makes metrics.jsonl first, so an empty one is a run that died before its first record;
    a config.json alone is no run of ours and must not be overwritten.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"workdir: {path} is a file; choose a folder")
    metrics = path / "metrics.jsonl"
    taken = metrics.stat().st_size > 0 if metrics.exists() else (path / "config.json").exists()
    if taken:
        raise ValueError(f"workdir: {path} already holds a run; choose another or remove it")


def _write(path: Path, content: Mapping) -> None:
    """A reader sees the old file or the new one, never half of one."""
    part = path.with_name(path.name + ".part")
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    part.write_text(text + "\n", "utf-8")
    part.replace(path)


def _scalar(value: Any) -> Any:
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _number(field: str, value: Any, kind: type) -> Any:
    number = _scalar(value)
    if isinstance(number, bool) or not isinstance(number, kind):
        what = "a whole number" if kind is numbers.Integral else "a number"
        raise ValueError(f"record.{field}: {value!r} is not {what}")
    return number


def _back(value: float | None) -> float:
    return math.nan if value is None else value


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _command() -> str:
    """The command line with the script as seen from the working directory."""
    script, *arguments = sys.argv or [""]
    absolute = Path(script).resolve()
    near = absolute.is_relative_to(Path.cwd())
    shown = absolute.relative_to(Path.cwd()) if near else Path(absolute.name)
    return shlex.join(["python", str(shown), *arguments])


def _commit() -> str | None:
    """The commit of this very file, with "-dirty" after it where tracked files have changed."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True, text=True, check=True, timeout=10,
        ).stdout.strip()  # fmt: skip

    try:
        # An installed copy may lie inside a repository that is not ours.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None

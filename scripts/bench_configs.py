"""Measures how long configs take, as a user meets them.

    python scripts/bench_configs.py                          # the quick variant of every config
    python scripts/bench_configs.py classification vision:draw         # these, as after configs/

Writes results/times.json after each run, and the table of docs/running.md from it at the end; what
is measured again is replaced, the rest stays. Each `train.py --config=configs/NAME.py[:ARGUMENT]`
is a process of its own, with an empty folder for compiled programs: the time is that of the first
run, from the command to its end. The machine must do nothing else; a load of LOAD or more is
refused in one line with status 2, a run that fails with status 1.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax.lab.hosts.devices import cores
from posenc_jax.lab.hosts.exit_status import one_line
from posenc_jax.lab.hosts.files import write_json
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.report.markdown import replace_between

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- table: python scripts/bench_configs.py -->", "<!-- end of table -->"
LOAD = 0.5  # of the last minute


class Time(NamedTuple):
    """Seconds on the clock and of all cores together, and when and where they were measured."""

    seconds: float
    cpu_seconds: float
    date: str
    cores: int
    python: str
    jax: str


def parsed_flags() -> Flags:
    flags = Flags(__doc__)
    flags.add_argument("variants", nargs="*", metavar="VARIANT", help="as after configs/")
    return flags


@one_line
def main(variants: Sequence[str] = ()) -> int:
    """Returns the exit status; see the module's docstring."""
    if (load := os.getloadavg()[0]) >= LOAD:
        print(f"error: the machine is busy, with a load of {load:.1f}; wait until it is below "
              f"{LOAD}", file=sys.stderr)  # fmt: skip
        return 2
    path = ROOT / "results" / "times.json"
    times = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for variant in variants or quick_variants(ROOT / "configs"):
        try:
            time_of_run = measured(variant)
        except subprocess.CalledProcessError as error:
            print(f"error: {variant}: status {error.returncode}: {error.stderr}", file=sys.stderr)
            return 1
        print(f"{variant}: {time_of_run.seconds:.0f} s", flush=True)
        times[variant] = time_of_run._asdict()
        write_json(path, times)
    replace_between(ROOT / "docs" / "running.md", table(times), BEGIN, END)
    return 0


def quick_variants(configs: Path) -> list[str]:
    """Returns NAME:quick for each config that has a quick variant."""
    return [f"{path.stem}:quick" for path in sorted(configs.glob("*.py"))
            if path.stem != "common" and "quick" in path.read_text("utf-8")]  # fmt: skip


def measured(variant: str) -> Time:
    """Returns how long NAME or NAME:ARGUMENT takes. CalledProcessError: its status was not 0."""
    name, colon, argument = variant.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "train.py", f"--config=configs/{name}.py{colon}{argument}",
                   f"--workdir={folder}/run"]  # fmt: skip
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled"}
        began, used = time.monotonic(), _cpu_seconds()
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True,
                       text=True)  # fmt: skip
        seconds, cpu_seconds = time.monotonic() - began, _cpu_seconds() - used
    return Time(
        round(seconds, 1),
        round(cpu_seconds, 1),
        datetime.date.today().isoformat(),
        len(cores()),
        platform.python_version(),
        importlib.metadata.version("jax"),
    )


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(times: dict) -> str:
    """Returns the times as a table in Markdown, with a line on the machines."""
    lines = ["| run | seconds |", "|---|---|"]
    for variant in sorted(times):
        name, colon, argument = variant.partition(":")
        seconds = times[variant]["seconds"]
        lines.append(f"| `configs/{name}.py{colon}{argument}` | {seconds:.0f} |")
    values_of = lambda field: sorted({time[field] for time in times.values()})
    count, jax = (", ".join(map(str, values_of(field))) for field in ("cores", "jax"))
    cores = f"{count} free core{'s' * (count != '1')}"
    return "\n".join([
        *lines, "", f"On {cores}, JAX {jax}, nothing compiled before; "
        f"{' to '.join(dict.fromkeys((values_of('date')[0], values_of('date')[-1])))}, "
        "[raw numbers](../results/times.json)."
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(parsed_flags().parse_args().variants))

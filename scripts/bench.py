"""Compares a training step, tracing a model, and long attention with peers, in turn in one run.

    python scripts/bench.py                              # writes results/benchmarks.json
    python scripts/bench.py --peer-python=PATH           # PyTorch and x-transformers live there
    python scripts/bench.py --only=step --rounds=3 --to=/tmp/bench

Each contestant is a process of its own, and they run in turn, so that a noisy machine slows them
alike. The result is the ratio of times within a round, and its median over rounds. The peers need
the `bench` extra (`pip install '.[bench]'`); without it their rows say so. Then
`python scripts/speed_page.py` writes the tables of docs/speed.md; the site has all of them.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.runs.environment import processor

HERE = Path(__file__).parent
SMALL = {"width": 64, "heads": 8, "layers": 2, "batch": 128, "length": 40, "steps": 20}
LARGE = {"width": 256, "heads": 8, "layers": 4, "batch": 32, "length": 128, "steps": 4}
ENCODINGS = ("nope", "sinusoidal", "rope", "alibi", "t5")
TRACED = {"layers": 12, "heads": 4, "head": 16, "length": 256}
T5 = {"encoding": "t5", "options": {"bidirectional": False}}


def step_contests() -> dict[str, dict[str, dict]]:
    """Returns {contest: {contestant: job}}; the first contestant is ours."""
    contests = {}
    for size in (SMALL, LARGE):
        for encoding in ENCODINGS:
            job = {"what": "step", **size, **(T5 if encoding == "t5" else {"encoding": encoding})}
            rivals = {"posenc_jax": job}
            for flash in (False, True):
                name = "x-transformers" + (", flash" if flash else "")
                rivals[name] = {**job, "peer": "x-transformers", "flash": flash}
            if encoding == "nope":
                rivals["PyTorch, eager"] = {**job, "peer": "pytorch"}
                rivals["PyTorch, compiled"] = {**job, "peer": "pytorch", "compile": True}
                rivals["products alone"] = {**job, "what": "products"}
                rivals["products alone, PyTorch"] = {**rivals["products alone"], "peer": "pytorch"}
            contests[f"step, d {size['width']}, {encoding}"] = rivals
    return contests


def attention_contests() -> dict[str, dict[str, dict]]:
    """Returns the same of attention over one long sequence."""
    contests = {}
    shape = {"what": "attention", "heads": 8, "head": 32, **T5, "backward": False}
    for length in (8192, 16384):
        ours = {**shape, "length": length, "form": "blockwise"}
        rivals = {
            "posenc_jax, T5 bias": ours,
            "flex_attention, T5 bias": {**ours, "peer": "pytorch", "form": "flex"},
            "PyTorch SDPA, no bias": {**ours, "peer": "pytorch", "form": "none"},
        }
        if length == 8192:
            rivals["jax.nn, bias as an array"] = {**ours, "form": "materialised"}
            rivals["PyTorch SDPA, bias as a mask"] = {**ours, "peer": "pytorch", "form": "mask"}
        contests[f"attention forward, {length} tokens"] = rivals
    ours = {**shape, "length": 8192, "form": "blockwise", "backward": True}
    rivals = {"posenc_jax, T5 bias": ours}
    rivals["jax.nn, bias as an array"] = {**ours, "form": "materialised"}
    return contests | {"attention forward and backward, 8192 tokens": rivals}


def trace_contests() -> dict[str, dict[str, dict]]:
    """Returns the same of tracing a model, before it is compiled, beside attention by hand."""
    contests = {}
    for encoding in ("rope", "alibi", "t5"):
        for packed in (False, True):
            job = {"what": "trace", "encoding": encoding, "packed": packed, **TRACED}
            rivals = {"posenc_jax": {**job, "by_hand": False}, "by hand": {**job, "by_hand": True}}
            contests[f"trace, {encoding}{', packed sequences' * packed}"] = rivals
    return contests


class Worker:
    """A contestant in a process of its own; `ready` is {"mb"}, or {"failed": why}."""

    def __init__(self, job: dict, peer_python: str):
        ours = sys.executable, "bench_ours.py"
        python, script = (peer_python, "bench_torch.py") if "peer" in job else ours
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [python, str(HERE / script), json.dumps(job)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._say, self._hear = self._process.stdin, self._process.stdout
        self.ready = self._answer()

    def run(self) -> float:
        self._say.write("\n")
        self._say.flush()
        return self._answer()["seconds"]

    def stop(self) -> None:
        self._say.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self._hear.readline()
        if not line:
            self._errors.seek(0)
            return {"failed": (self._errors.read().strip().splitlines() or ["no message"])[-1]}
        return json.loads(line)


def contest(rivals: dict[str, dict], rounds: int, peer_python: str) -> dict[str, dict]:
    """Returns {contestant: {"mb", "seconds": [a round each]} or {"failed": why}}."""
    workers = {name: Worker(job, peer_python) for name, job in rivals.items()}
    results = {name: worker.ready for name, worker in workers.items()}
    for _ in range(rounds):
        for name, worker in workers.items():
            if "mb" in results[name]:
                results[name].setdefault("seconds", []).append(worker.run())
    for worker in workers.values():
        worker.stop()
    return results


def machine(peer_python: str, rounds: int) -> dict[str, Any]:
    """Returns what the times depend on besides the code."""
    show = "import importlib.metadata as m; print(m.version('torch'), m.version('x-transformers'))"
    peers = subprocess.run([peer_python, "-c", show], capture_output=True, text=True)
    # Shows whether the machine ran at its full clock.
    additions = min(timeit.repeat("x += 1", "x = 0", number=10_000_000, repeat=3))
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "seconds for 10 million additions in Python": f"{additions:.2f}",
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
        **dict(zip(("torch", "x-transformers"), peers.stdout.split(), strict=False)),
        "rounds": rounds,
    }


def _shape(size: dict[str, int]) -> str:
    return (
        f"width {size['width']}, {size['layers']} layers, {size['heads']} heads, batch "
        f"{size['batch']}, length {size['length']}"
    )


def page(raw: dict, link: str) -> str:
    """The site's page of all raw results, in Markdown.

    link: to results/benchmarks.json.
    """
    lines = [
        "# Speed on a CPU",
        "",
        f"Made by `python scripts/bench.py`; raw numbers in {link}. What follows from them: "
        "[Speed](../speed.md).",
        "",
        "`ms` is the time of one training step, or of one attention call: the median over rounds.",
        "`ratio` is the peer's time divided by ours in the same round: the median, and the range",
        "in brackets; above 1, ours is faster. `MB` is the growth of the process's peak memory",
        "besides the inputs. It includes compilation, and it is too small where imports and",
        "compilation had already taken more. x-transformers runs with the same widths and its two",
        "attention settings.",
        *(
            ["`first call` is the seconds of the first call, which compiles."]
            if any(
                "first" in result
                for results in raw["contests"].values()
                for result in results.values()
            )
            else []
        ),
        "",
        f"A step is of a causal decoder with {_shape(SMALL)}; or {_shape(LARGE)}.",
        "Attention is causal, of one sequence, 8 heads of width 32.",
        f"A trace is that of the gradient of a decoder of {TRACED['layers']} layers, lowered for",
        "XLA, not compiled; `by hand` is attention written for this method alone. Its times are",
        "the process's own.",
        "",
    ]
    if any("products alone" in results for results in raw["contests"].values()):
        lines += [
            "`products alone` is only a step's matrix products, forward and backward. JAX computes",
            "them as our step does, but for all rows at once; our step splits the rows into parts.",
            "",
        ]
    where = None
    for name, results in raw["contests"].items():
        lines += [f"## {name}", ""]
        if raw["machines"][name] != where:  # as for the contests that follow
            where = raw["machines"][name]
            lines += [", ".join(f"{what} {value}" for what, value in where.items()) + ".", ""]
        lines += [*table(results, raw["steps"].get(name, 1)), ""]
    return "\n".join(lines)


def table(results: dict[str, Any], steps: int) -> list[str]:
    """The lines of the table of one contest, of which a round has so many steps; below it, why
    some were not measured.
    """
    ours = next(iter(results.values()))
    compiles = any("first" in result for result in results.values())
    lines = ["| | ms | ratio | MB |", "|---|---:|---:|---:|"]
    if compiles:
        lines = [f"{lines[0]} first call, s |", f"{lines[1]}---:|"]
    reasons = []
    for who, result in results.items():
        if "failed" in result:
            lines.append(f"| {who} | – | – | – |{' – |' * compiles}")
            reasons += ["", f"{who} was not measured: {result['failed']}."]
            continue
        by_round = ratios(result, ours)
        ratio = f"{statistics.median(by_round):.2f} ({min(by_round):.2f}–{max(by_round):.2f})"
        ms = statistics.median(result["seconds"]) / steps * 1e3
        ratio = "1" if result is ours else ratio
        line = f"| {who} | {ms:.1f} | {ratio} | {result['mb']:.0f} |"
        lines.append(line + (f" {result['first']:.1f} |" if "first" in result else ""))
    return [*lines, *reasons]


def ratios(result: dict[str, Any], ours: dict[str, Any]) -> list[float]:
    """Returns the time of a contestant / ours, in each round."""
    return [p / o for p, o in zip(result["seconds"], ours["seconds"], strict=True)]


def main() -> None:
    parser = Flags((__doc__ or "").splitlines()[0])
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--only", default="", help="how the contests' names begin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--to", type=Flags.path, default=HERE.parent, metavar="DIR",
                        help="what holds results/; default: the repository")  # fmt: skip
    flags = parser.parse_args()
    all_contests = step_contests() | attention_contests() | trace_contests()
    contests = {
        name: rivals for name, rivals in all_contests.items() if name.startswith(flags.only)
    }
    if not contests:
        parser.error(
            f"--only: no contest begins with {flags.only!r}; choices: {', '.join(all_contests)}"
        )
    raw: dict[str, Any] = {
        "machines": dict.fromkeys(contests, machine(flags.peer_python, flags.rounds)),
        "steps": {n: next(iter(r.values())).get("steps", 1) for n, r in contests.items()},
        "contests": {},
    }
    raw_path = flags.to / "results/benchmarks.json"
    raw_path.parent.mkdir(parents=True, exist_ok=True)
    if flags.only and raw_path.exists():  # the others stay as they were
        before = json.loads(raw_path.read_text())
        for what in ("steps", "machines"):
            raw[what] = before[what] | raw[what]
        raw["contests"] = before["contests"]
    for name, rivals in contests.items():
        raw["contests"][name] = contest(rivals, flags.rounds, flags.peer_python)
        raw_path.write_text(json.dumps(raw, indent=1) + "\n")
        for who, result in raw["contests"][name].items():
            times = result.get("seconds")
            shown = f"{statistics.median(times):.3f} s" if times else result["failed"]
            print(f"{name:45} {who:32} {shown}", flush=True)


if __name__ == "__main__":
    main()

"""Measures this library on a GPU: attention against peers, every method's kernel, trainings.

    python scripts/bench_gpu.py                       # writes results/gpu.json
    python scripts/bench_gpu.py --only=attention      # a part; the others stay as they were
    python scripts/bench_gpu.py --quick --to=/tmp     # small sizes, on any machine, for a look

Each contestant is a process of its own. All compile at the same time; then they measure in turn,
once in each round. What fails, or is not compiled in time, says so in the page. PyTorch is one of
the peers, if it is installed. The machine and the GPU must do nothing else. Then
`python scripts/speed_page.py` writes the tables of docs/speed.md; the site has all of them.
"""

import contextlib
import datetime
import json
import os
import platform
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax import encodings
from posenc_jax.lab.hosts.files import write_json
from posenc_jax.lab.hosts.flags import Flags

ROOT = Path(__file__).parents[1]
HEADS = {"heads": 12, "head": 64}
QUICK_HEADS = {"heads": 2, "head": 16}
# XLA takes three quarters of the GPU's memory when a process starts, if it is not told otherwise.
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
FORMS = {"kernel": 16384, "blockwise": 16384, "dense": 1024}  # compared, up to so many tokens
STEPS = {"kernel": ("rope", "alibi", "t5", "fire", "fox"),
         "blockwise": ("rope", "fire", "transformer_xl")}  # fmt: skip
IN_MOSAIC = {"kernel": "mosaic"}  # a name of `backends.target.KERNELS`
LATEST = 1.5  # of the seconds to begin in: what is not ready, or measures longer, is left out
UNTUNED = "--xla_gpu_autotune_level=0"  # XLA does not compile many kernels to time them


def attention(quick: bool) -> dict[str, dict[str, Any]]:
    """The contestants; the first is what the page compares with."""
    return _attention([64] if quick else [1024, 4096, 16384], quick)


def long(quick: bool) -> dict[str, dict[str, Any]]:
    """The same of one sequence: by itself, since all share the memory."""
    return _attention([128] if quick else [65536], quick)


def forms(quick: bool) -> dict[str, dict[str, Any]]:
    """The forms of one method's attention, and an array of its bias."""
    lengths = [64] if quick else [1024, 4096, 16384]
    up_to = lambda most: [n for n in lengths if n <= most]
    array = {**_jax_nn(up_to(4096), quick), "bias": True}
    return {
        f"{method}, {form}": _ours(form, method, up_to(most), quick)
        for method in ("rope", "alibi", "t5", "fire")
        for form, most in FORMS.items()
    } | {"jax.nn, cuDNN, ALiBi as an array": array}


def _attention(lengths: list[int], quick: bool) -> dict[str, dict[str, Any]]:
    shared = _shared(lengths, quick)
    kernels = ("nope", "rope", "alibi", "kerple_log", "t5", "fire", "fox")
    torch = {**shared, "part": "peers"}
    return {
        "jax.nn, cuDNN, no bias": {**_jax_nn(lengths, quick), "bias": False},
        **{f"posenc_jax, {name}": _ours("kernel", name, lengths, quick) for name in kernels},
        "PyTorch SDPA, no bias": {**torch, "bias": None},
        "PyTorch flex_attention, ALiBi": {**torch, "bias": "alibi"},
        "PyTorch flex_attention, T5": {**torch, "bias": "t5"},
    }


def _ours(form: str, method: str, lengths: list[int], quick: bool) -> dict[str, Any]:
    options = {"bidirectional": False} if method == "t5" else {}
    job = {"part": "attention", "form": form, "method": method, "options": options}
    return {**_shared(lengths, quick), **job}


def _jax_nn(lengths: list[int], quick: bool) -> dict[str, Any]:
    implementation = "xla" if quick else "cudnn"
    return {**_shared(lengths, quick), "part": "attention", "implementation": implementation}


def _shared(lengths: list[int], quick: bool) -> dict[str, Any]:
    tokens = 64 if quick else 16384
    return {"lengths": lengths, "tokens": tokens, **(QUICK_HEADS if quick else HEADS)}


def errors(quick: bool) -> dict[str, dict[str, Any]]:
    """What every method's kernel adds to the error of attention."""
    return _methods("errors", quick)


def times(quick: bool) -> dict[str, dict[str, Any]]:
    """Every method's kernel on one long sequence."""
    return _methods("times", quick)


def _methods(what: str, quick: bool) -> dict[str, dict[str, Any]]:
    """Processes that have every method between them."""
    names = ["rope", "t5"] if quick else sorted(encodings.CATALOG)
    tokens, few = (64, 32) if quick else (8192, 256)
    job = {"part": "methods", "what": what, "tokens": tokens, "few": few, "flags": UNTUNED,
           **(QUICK_HEADS if quick else HEADS)}  # fmt: skip
    count = min(os.cpu_count() or 1, len(names))
    return {f"methods {n}": {**job, "names": names[n::count]} for n in range(count)}


def steps(quick: bool) -> dict[str, dict[str, Any]]:
    """A step of a decoder of width 768 on 8 windows of 2,048 bytes, by the form of attention."""
    model = {"width": 768, "heads": 12, "layers": 12, "dtype": "bfloat16"}
    train = {"length": 2048, "batch": 8}
    if quick:
        model, train = {"width": 32, "heads": 2, "layers": 1}, {"length": 32, "batch": 2}
    job = {"part": "trainings", "model": model, "train": train, "steps": 4}
    taken = [(name, form) for form, names in STEPS.items() for name in names]
    return {
        f"{name}, {form}": {**job, "method": name, "forms": [form]}
        for name, form in (taken[:2] if quick else taken)
    }


def seeds(quick: bool) -> dict[str, dict[str, Any]]:
    """A step of the default model, of so many seeds in one program."""
    counts = [1, 2] if quick else [1, 4, 32]
    job = {"part": "trainings", "model": {}, "train": {}, "steps": 4 if quick else 100}
    return {"rope": {**job, "method": "rope", "seeds": counts}}


def board(quick: bool) -> dict[str, dict[str, Any]]:
    """A run of the leaderboard on copying."""
    few = ["--config.train.steps=100", "--config.seeds=1"] if quick else []
    argument = "rope,nope" if quick else "rope,alibi"
    return {argument: {"part": "board", "methods": argument, "fields": few, "flags": UNTUNED}}


def hopper(quick: bool) -> dict[str, dict[str, Any]]:
    """Our kernels for a Hopper GPU beside those in Triton, cuDNN's and PyTorch's: a short list."""
    lengths = [64] if quick else [4096, 16384]
    ours = {
        f"posenc_jax, {name}, in Mosaic": {**_ours("kernel", name, lengths, quick), **IN_MOSAIC}
        for name in ("nope", "alibi", "kerple_log", "t5", "window", "fox")
    }
    fire = {**_ours("kernel", "fire", lengths[-1:], quick), **IN_MOSAIC}
    contest = _attention(lengths, quick)
    others = ("jax.nn, cuDNN, no bias", "posenc_jax, alibi", "posenc_jax, t5",
              "PyTorch flex_attention, ALiBi")  # fmt: skip
    return {**{name: contest[name] for name in others}, **ours, "posenc_jax, fire, in Mosaic": fire}


PARTS: dict[str, tuple[Callable[[bool], dict[str, dict[str, Any]]], int]] = {
    "attention": (attention, 3),
    "long": (long, 3),
    "forms": (forms, 3),
    "errors": (errors, 1),
    "times": (times, 2),
    "steps": (steps, 2),
    "seeds": (seeds, 2),
    "board": (board, 1),
    "hopper": (hopper, 3),
}  # what makes the jobs, and in how many rounds they are measured


class Worker:
    """A contestant's process."""

    def __init__(self, job: dict[str, Any]):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.gpu.worker", json.dumps(job)], cwd=ROOT, text=True,
            env={**os.environ, **ENVIRONMENT, "XLA_FLAGS": job.get("flags", "")},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip

    def wait(self, until: float) -> dict[str, str]:
        """Returns {case: why it failed} once it is ready; {"all": why} if the process did, or is
        not ready at this time of `time.monotonic()`.
        """
        return self._answer(until, "not ready in time").get("failed") or {}

    def measure(self, until: float) -> dict[str, Any]:
        """Returns {case: number, "failed": as `wait` has it}."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self._answer(until, "not measured in time")

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()  # closes its pipes
        self._errors.close()

    def _answer(self, until: float, late: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        left = max(0.0, until - time.monotonic())
        if not select.select([self._process.stdout], [], [], left)[0]:
            return {"failed": {"all": late}}
        if line := self._process.stdout.readline():
            return json.loads(line)
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines() or ["no message"]
        return {"failed": {"all": said[-1][:160]}}


def contest(
    jobs: dict[str, dict[str, Any]],
    rounds: int,
    keep: Callable[[dict[str, Any]], None],
    seconds: float,
) -> None:
    """Gives `keep` all that is known, {contestant: {"failed": {case: why}, case: [numbers]}}, as
    it comes: a number from each round.

    seconds: after which a contestant is left out that is not ready, or that has not measured.
    """
    until = time.monotonic() + seconds
    workers = {name: Worker(job) for name, job in jobs.items()}
    results: dict[str, dict[str, Any]] = {}
    try:
        for name, worker in workers.items():
            results[name] = {"failed": worker.wait(until)}
        for name in results:
            if "all" in results[name]["failed"]:
                workers.pop(name).stop()  # before others measure
        keep(results)
        for _ in range(rounds):
            for name, worker in list(workers.items()):
                measured = worker.measure(time.monotonic() + seconds)
                results[name]["failed"] |= measured.pop("failed", {})
                if "all" in results[name]["failed"]:
                    workers.pop(name).stop()
                for case, number in measured.items():
                    results[name].setdefault(case, []).append(number)
                keep(results)
    finally:
        for worker in workers.values():
            worker.stop()


def machine() -> dict[str, str]:
    """What the numbers depend on besides the code."""
    show = (
        "import jax, json; d = jax.devices()[0]; print(json.dumps({'device': d.device_kind,"
        "'backend': d.platform, 'jax': jax.__version__, 'runtime': d.client.platform_version}))"
    )
    command = [sys.executable, "-c", show]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    command[2] = "import torch; print(torch.__version__)"
    torch = subprocess.run(command, capture_output=True, text=True).stdout.strip() or "none"
    said |= {"torch": torch, "python": platform.python_version(), "cores": str(os.cpu_count())}
    return {**said, "date": datetime.date.today().isoformat()}


def main() -> None:
    parser = Flags((__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only",
        default=",".join(PARTS),
        metavar="PART,...",
        help="parts, with commas between them",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, on any machine")
    parser.add_argument("--seconds", type=float, default=600.0, help="to begin to compile in")
    parser.add_argument("--to", type=Flags.path, default=ROOT, metavar="DIR",
                        help="what holds results/; default: the repository")  # fmt: skip
    flags = parser.parse_args()
    for part in flags.only.split(","):
        if part not in PARTS:
            parser.error(f"--only: {part!r} is no part; choices: {', '.join(PARTS)}")
    here = machine()
    if here["backend"] != "gpu" and not flags.quick:
        raise SystemExit(f"error: no GPU; JAX has {here['backend']}. --quick shows that it runs")
    path = flags.to / "results/gpu.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    raw: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for part in flags.only.split(","):
        make, rounds = PARTS[part]
        began, jobs = time.monotonic(), make(flags.quick)
        jobs = {name: {**job, "seconds": flags.seconds} for name, job in jobs.items()}

        def keep(results: dict[str, Any], part: str = part) -> None:
            raw.setdefault(part, {})[here["device"]] = {"machine": here, "found": results}
            write_json(path, raw)

        contest(jobs, 1 if flags.quick else rounds, keep, LATEST * flags.seconds)
        print(f"{part}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""Computes what the leaderboard would take at published sizes: the tables of docs/scaling.md.

python scripts/scaling.py [--out=docs/scaling.md]

Nothing of a published size is run. Parameters, FLOPs and bytes are counted in our training step,
traced with shapes only; its share of a machine's matrix rate is measured at small widths.
"""

import argparse
import datetime
import math
import os
import re
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax import encodings
from posenc_jax.lab.runs.environment import processor
from scripts.collectives import table, write
from scripts.step_costs import Cost, Setting, analysis, by_formula, counted, step_and_state

DEVICES = Path("docs/devices.md")
BEGIN, END = "<!-- tables: python scripts/scaling.py -->", "<!-- end of tables -->"
UTILISATION = 0.2, 0.5  # of the peak, on accelerators: assumed
GAP = 1e-4, 1e-3  # seconds that a step of a tiny model may wait for its launches: assumed
PER_PARAMETER = 12  # bytes of state: a parameter and AdamW's two moments, float32
SEEDS, RESULT_SEEDS = 3, 10  # the fewest of a comparison; of the randomized positions


class Chip(NamedTuple):
    """FLOP/s in bfloat16, bytes of memory, bytes/s to it and, one way, to other chips."""

    name: str
    flops: float
    memory: float
    bandwidth: float
    link: float


CARDS = [encodings.card(name) for name in encodings.CATALOG]
METHODS = sum(card.axes <= 1 and card.groups is None for card in CARDS)  # for sequences
SETTINGS = (
    Setting("107M", 768, 12, 12, 32_128, 42, 64, 40_000, METHODS * 10 * SEEDS),
    Setting("247M, words", 1024, 8, 16, 267_735, 512, 144, 286_000, METHODS * SEEDS),
    Setting("247M, bytes", 1024, 8, 16, 256, 512, 144, 286_000, METHODS * SEEDS),
    TINY := Setting("randomized", 64, 8, 5, 34, 82, 128, 2_000_000, 15 * 11 * RESULT_SEEDS),
)
V5E = Chip("v5e", 197e12, 16e9, 819e9, 200e9)
V6E = Chip("v6e", 918e12, 32e9, 1640e9, 400e9)
H200 = Chip("H200", 989e12, 141e9, 4800e9, 450e9)
MACHINES = {"v5e-8": (V5E, 8), "v6e-8": (V6E, 8), "one H200": (H200, 1),
            "v5e-256": (V5E, 256), "v6e-256": (V6E, 256)}  # fmt: skip


def held(
    setting: Setting, cost: Cost, chips: int, fsdp: bool, parts: int = 1, remat: bool = False
) -> float:
    """Returns bytes on each chip that shares a run: state, gradients, a bfloat16 copy, and rows.

    A batch in `parts` has their gradients twice: of one part, and summed. With `remat` the backward
    pass has one layer's activations at a time.
    """
    state = PER_PARAMETER / chips + 4 if fsdp else PER_PARAMETER
    gradients = 4 if parts == 1 else 8
    rows = math.ceil(setting.batch / chips / parts)
    row = cost.inputs + cost.activations / setting.layers if remat else cost.activations
    return (state + gradients + 2) * cost.parameters + rows * row


def least_parts(
    setting: Setting, cost: Cost, chip: Chip, chips: int, fsdp: bool, remat: bool
) -> int | None:
    """Returns the fewest parts of a batch, `accumulate`, with which it fits; None if none."""
    counts = [n for n in range(1, setting.batch + 1) if setting.batch % n == 0]
    fits = lambda n: held(setting, cost, chips, fsdp, n, remat) <= chip.memory
    return next(filter(fits, counts), None)


def least_chips(setting: Setting, cost: Cost, chip: Chip, most: int, fsdp: bool) -> int | None:
    """Returns the fewest chips over which a run fits; None if it needs more than `most`."""
    sizes = [2**n for n in range(9) if 2**n <= min(most, setting.batch)]
    return next((n for n in sizes if held(setting, cost, n, fsdp) <= chip.memory), None)


def hours(setting: Setting, cost: Cost, chip: Chip, chips: int) -> list[float]:
    """Returns the hours of all runs at the highest and the lowest utilisation, chips never idle."""
    seconds = setting.runs * setting.steps * cost.flops / (chips * chip.flops)
    return [seconds / u / 3600 for u in reversed(UTILISATION)]


def tiny_step(cost: Cost, rows: int, chip: Chip) -> list[tuple[float, ...]]:
    """Returns seconds of a step of all seeds, for its launches, bytes and FLOPs: best, worst."""
    least = 2 * (PER_PARAMETER * cost.parameters + rows * cost.activations)
    bytes = [RESULT_SEEDS * each / chip.bandwidth for each in (least, cost.moved)]
    flops = [RESULT_SEEDS * cost.flops / (chip.flops * u) for u in reversed(UTILISATION)]
    return list(zip(GAP, bytes, flops, strict=True))


def tiny_hours(setting: Setting, cost: Cost, chip: Chip, chips: int) -> list[float]:
    """Returns the hours of all runs, in rounds; a step takes as long as its slowest part."""
    rounds = math.ceil(setting.runs / RESULT_SEEDS / chips)
    step = tiny_step(cost, setting.batch, chip)
    return [rounds * setting.steps * max(each) / 3600 for each in step]


def sent_per_parameter(page: str) -> dict[str, float]:
    """Returns bytes a parameter communicated in a step, from the table of docs/devices.md."""
    row = r"^\| (rows spread.*?) \| (\d+) \| \d+ \| [^|]* \| ([\d.]+) "
    found = re.findall(row, page, re.MULTILINE)
    return {way: PER_PARAMETER * float(sent) / float(state) for way, state, sent in found}


def rate(run: Callable, flops: float) -> float:
    """Returns GFLOP per second of processor time, without other processes: the best of four."""
    return flops / min(timeit.repeat(run, timer=time.process_time, repeat=4, number=1)) / 1e9


def matrix_rate(size: int = 1024, times: int = 10) -> float:
    """Returns the rate of float32 matrix products."""
    a = jnp.ones((size, size)) / size
    chain = jax.jit(lambda a: jax.lax.fori_loop(0, times, lambda _, x: x @ a, a))
    return rate(lambda: jax.block_until_ready(chain(a)), 2 * size**3 * times)


def reached(width: int) -> tuple[float, ...]:
    """Returns GFLOP of a small step, GFLOP/s of it and of matrix products after it, their ratio."""
    setting = Setting("small", width, 8, 2, 34, 82, 24, 100, 1, dtype="float32")
    step, fresh = step_and_state(setting)
    state = jax.jit(fresh)(jnp.zeros((), jnp.int32))
    flops = analysis(step, state)["flops"]
    times = max(1, 256 // width)
    many = jax.jit(lambda s: jax.lax.scan(lambda s, _: step(s), s, length=times)[0])
    ours = rate(lambda: jax.block_until_ready(many(state)), flops * times)
    products = matrix_rate()
    return flops / 1e9, ours, products, ours / products


def sizes_table(costs: dict[Setting, Cost]) -> str:
    rows = []
    for s, c in costs.items():
        formula, tokens = by_formula(s, c.parameters), s.batch * s.time
        rows.append([
            s.name, f"{c.parameters / 1e6:,.2f}", f"{s.batch} x {s.time} = {tokens:,}",
            f"{formula / 1e9:,.1f}", f"{c.flops / 1e9:,.1f}", f"{c.flops / formula:.3f}",
            f"{PER_PARAMETER * c.parameters / 1e9:.3f}", f"{c.activations / 1e6:.2f}",
            f"{c.inputs / 1e6:.2f}", f"{s.steps:,}", f"{tokens * s.steps / 1e9:.2f}", f"{s.runs:,}",
            f"{s.runs * s.steps * c.flops:.2e}",
        ])  # fmt: skip
    head = ["setting", "N, M", "tokens a step, D", "6 (N - VW) D + 12 L D T W, GFLOP",
            "counted, GFLOP", "ratio", "state, 12 N, GB", "kept a row, A, MB",
            "with `remat`, MB", "steps", "tokens a run, G", "runs", "FLOP in all"]  # fmt: skip
    return table(head, rows)


def fit_table(costs: dict[Setting, Cost], sent: dict[str, float]) -> str:
    rows = []
    for s, c in costs.items():
        for name, (chip, chips) in MACHINES.items():
            cells = []
            for fsdp in (False, True):
                n = least_chips(s, c, chip, chips, fsdp)
                cells.append(f"{n}: {held(s, c, n, fsdp) / 1e9:.2f}" if n else "does not fit")
            for bytes in sent.values():
                around = (chips - 1) / chips * (2 * 4 + bytes - 4)
                cells.append(f"{1e3 * around * c.parameters / chip.link:.4g}")
            steps = [1e3 * c.flops / (chips * chip.flops * u) for u in reversed(UTILISATION)]
            rows.append([s.name, name, *cells, f"{steps[0]:.4g} to {steps[1]:.4g}"])
    ways = [f"{way}, ms ({bytes:.1f} N bytes)" for way, bytes in sent.items()]
    head = ["setting", "machine", "least chips a run: GB on each", "the same, FSDP", *ways,
            "computing, ms"]  # fmt: skip
    return table(head, rows)


def parts_table(costs: dict[Setting, Cost]) -> str:
    rows = []
    for s, c in costs.items():
        for name, (chip, most) in MACHINES.items():
            chips, cells = min(most, 2 ** int(math.log2(s.batch))), []
            for remat in (False, True):
                for fsdp in (False, True):
                    n = least_parts(s, c, chip, chips, fsdp, remat)
                    size = held(s, c, chips, fsdp, n, remat) / 1e9 if n else 0
                    cells.append(f"{n}: {size:.2f}" if n else "does not fit")
            rows.append([s.name, name, str(chips), *cells])
    ways = "`accumulate`: GB on each", "the same, FSDP", "`remat`", "`remat`, FSDP"
    return table(["setting", "machine", "chips", *ways], rows)


def time_table(costs: dict[Setting, Cost]) -> str:
    rows = []
    for s, c in costs.items():
        span = tiny_hours if s == TINY else hours
        cells = []
        for machine in MACHINES.values():
            low, high = span(s, c, *machine)
            cells.append(f"{low:,.1f} to {high:,.1f}")
        rows.append([s.name, *cells])
    first = next(iter(costs.items()))
    return f"{table(['hours for all runs', *MACHINES], rows)}\n\n{example(*first)}"


def example(setting: Setting, cost: Cost) -> str:
    chip, chips = MACHINES["v5e-8"]
    rate = f"{chips} x {chip.flops / 1e12:g}e12 x {UTILISATION[1]}"
    return (
        f"{setting.name} on v5e-8, at best: {setting.runs:,} x {setting.steps:,} x "
        f"{cost.flops / 1e9:,.1f}e9 / ({rate}) / 3600 = {hours(setting, cost, chip, chips)[0]:.1f}."
    )


def tiny_table(cost: Cost) -> str:
    rows = []
    for chip in (V5E, V6E, H200):
        pairs = zip(*tiny_step(cost, TINY.batch, chip), strict=True)
        rows.append([chip.name, *(f"{1e3 * a:.2f} to {1e3 * b:.2f}" for a, b in pairs)])
    return table(["ms a step of 10 seeds", "launches", "bytes", "FLOP"], rows)


def measured_table(widths: Sequence[int] = (64, 256, 512)) -> str:
    rows = [[str(width), *(f"{x:.2f}" for x in reached(width))] for width in widths]
    return table(["width", "GFLOP a step", "GFLOP/s", "of products", "utilisation"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/scaling.md"))
    out = parser.parse_args().out
    jax.config.update("jax_platforms", "cpu")
    costs = {setting: counted(setting) for setting in SETTINGS}
    where = f"{os.cpu_count()} cores of {processor()}"
    made = f"Made on {datetime.date.today()} with JAX {jax.__version__}, on {where}."
    sections = {
        "What a step takes": sizes_table(costs),
        "What is measured here": measured_table(),
        "Whether it fits, and communication": fit_table(
            costs, sent_per_parameter(DEVICES.read_text("utf-8"))
        ),
        "The published batch in parts": parts_table(
            {s: c for s, c in costs.items() if s.name.startswith("247M")}
        ),
        "A step of the tiny model": tiny_table(costs[TINY]),
        "Hours": time_table(costs),
    }
    content = "\n\n".join([*(f"### {title}\n\n{text}" for title, text in sections.items()), made])
    print(content)
    write(out, content, BEGIN, END)


if __name__ == "__main__":
    main()

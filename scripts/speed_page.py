"""Writes the tables of docs/speed.md from results/benchmarks.json and results/gpu.json.

    python scripts/speed_page.py

The tables of what is compiled for accelerators are those of scripts/compile_for.py.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from posenc_jax.lab.hosts.exit_status import one_line
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.report.formats import counted
from posenc_jax.lab.report.markdown import replace_between
from scripts import bench
from scripts.gpu.page import parts

ROOT = Path(__file__).parents[1]
# Programs that compute what ours do; "products alone" and attention without a bias do less.
PEERS = ("x-transformers", "PyTorch, ", "flex_attention", "jax.nn, bias", "PyTorch SDPA, bias")
CPU_TOKENS, GPU_TOKENS = 8192, 4096  # of the attention in the table of processors
GPU_PEERS = {  # our method -> the programs that it is compared with
    "t5": ("PyTorch flex_attention, T5",),
    "alibi": ("PyTorch flex_attention, ALiBi",),
    "rope": ("PyTorch SDPA, no bias", "jax.nn, cuDNN, no bias"),
}
GPU_PARTS = ("attention", "forms", "steps", "hopper")  # the others are on the site alone
# Our time / that of the fastest of PyTorch and x-transformers, by width: least and greatest.
REPORTED = {"an Intel with AVX-512 and AMX*": {64: (0.52, 0.66), 256: (1.05, 1.28)}}
MISSING = "not measured"
MARKS = "<!-- {}: python scripts/speed_page.py -->", "<!-- end of {} -->"


def processors(cpu: Mapping[str, Any], gpu: Mapping[str, Any]) -> str:
    """Returns the table with a row for each processor, in Markdown.

    Args:
      cpu: the content of results/benchmarks.json.
      gpu: the content of results/gpu.json.
    """
    (machine,) = {str(where) for where in _machines(cpu, "step, ")}
    widths = bench.SMALL["width"], bench.LARGE["width"]
    _, by_round = _fastest(cpu["contests"][f"attention forward, {CPU_TOKENS} tokens"])
    t5 = f"{median(by_round):.2f}"
    rows = [[machine, *(_span(_step_ratios(cpu, width)) for width in widths), t5, MISSING, MISSING]]
    for name, by_width in REPORTED.items():
        spans = [_span([1 / ratio for ratio in by_width[width]]) for width in widths]
        rows.append([name, *spans, *[MISSING] * 3])
    for record in gpu["attention"].values():
        machine = f"{record['machine']['device']}, {record['machine']['date']}"
        ratios = [_gpu_ratios(record["found"], *pair) for pair in GPU_PEERS.items()]
        rows.append([machine, MISSING, MISSING, *ratios])
    rows.append(["a TPU", *[MISSING] * 5])
    head = ["processor", *(f"training step, width {width}" for width in widths), "T5's bias",
            "ALiBi", "RoPE"]  # fmt: skip
    return _table(head, rows)


def _machines(cpu: Mapping[str, Any], beginning: str) -> list[str]:
    """Returns the processor, cores and date of contests, for each of them."""
    machines = [where for name, where in cpu["machines"].items() if name.startswith(beginning)]
    cores = lambda where: counted(where["cores"], "core")
    return [f"{where['cpu']}, {cores(where)}, {where['date']}" for where in machines]


def _fastest(results: Mapping[str, Any]) -> tuple[str, list[float]]:
    """Returns the fastest peer of a contest, and its time / ours in each round."""
    ours = next(iter(results.values()))
    ratios = {name: bench.ratios(result, ours) for name, result in results.items()
              if name.startswith(PEERS) and "seconds" in result}  # fmt: skip
    return min(ratios.items(), key=lambda pair: median(pair[1]))


def _step_ratios(cpu: Mapping[str, Any], width: int) -> list[float]:
    return [median(_fastest(results)[1]) for name, results in cpu["contests"].items()
            if name.startswith(f"step, d {width}, ")]  # fmt: skip


def _gpu_ratios(by_contestant: Mapping[str, Any], method: str, peers: Sequence[str]) -> str:
    """Returns the ratios of the forward pass, and of it with all gradients."""
    ours, ratios = by_contestant[f"posenc_jax, {method}"], []
    for part in ("forward", "backward"):
        case = f"{part}/{GPU_TOKENS}"
        fastest = min(median(by_contestant[peer][case]) for peer in peers)
        ratios.append(f"{fastest / median(ours[case]):.2f}")
    return " · ".join(ratios)


def _span(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def steps(cpu: Mapping[str, Any]) -> str:
    """Returns the table of training steps on a CPU, and how much of a step are its products."""
    rows, shares = [], []
    for name, results in cpu["contests"].items():
        if not name.startswith("step, "):
            continue
        _, width, encoding = name.split(", ")
        ms = lambda who, results=results, name=name: f"{_ms(results[who], cpu['steps'][name]):.1f}"
        peer, ratios = _fastest(results)
        rows.append(
            [width.removeprefix("d "), encoding, ms("posenc_jax"), peer, ms(peer), _range(ratios)]
        )
        if (products := results.get("products alone")) is not None:
            share = median(bench.ratios(products, results["posenc_jax"]))
            shares.append(f"{share:.0%} of our step at width {width.removeprefix('d ')}")
    head = ["width", "encoding", "ours, ms", "the fastest other", "its ms", "its time / ours"]
    return f"{_table(head, rows)}\n\nThe matrix products alone take {' and '.join(shares)}."


def long_attention(cpu: Mapping[str, Any]) -> str:
    """Returns the table of attention over long sequences on a CPU."""
    rows = []
    for name, results in cpu["contests"].items():
        if name.startswith("attention "):
            ours = next(iter(results.values()))
            rows += [
                [name.removeprefix("attention "), who, f"{_ms(result, 1):.0f}",
                 "1" if result is ours else _range(bench.ratios(result, ours)),
                 f"{result['mb']:.0f}"]
                for who, result in results.items()
            ]  # fmt: skip
    return _table(["attention", "program", "ms", "its time / ours", "MB"], rows)


def traces(cpu: Mapping[str, Any]) -> str:
    """Returns the table of tracing a model."""
    rows = []
    for name, results in cpu["contests"].items():
        if name.startswith("trace, "):
            ours, by_hand = results.values()
            times = (f"{_ms(result, 1):.0f}" for result in (ours, by_hand))
            ratio = _range(bench.ratios(by_hand, ours))
            rows.append([name.removeprefix("trace, "), *times, ratio])
    return _table(["trace", "ours, ms", "by hand, ms", "its time / ours"], rows)


def _ms(result: Mapping[str, Any], calls: int) -> float:
    return median(result["seconds"]) / calls * 1e3


def _range(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def blocks(cpu: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, str]:
    """Returns the name of each generated part of the page -> its Markdown."""
    return {
        "table of processors": processors(cpu, gpu),
        "training steps on a CPU": steps(cpu),
        "long attention on a CPU": long_attention(cpu),
        "traces": traces(cpu),
        "tables of a GPU": _gpu_tables(gpu),
    }


def _gpu_tables(gpu: Mapping[str, Any]) -> str:
    text = "\n".join(parts(gpu, GPU_PARTS)).replace("## ", "### ")
    return text.replace("\n\n\n", "\n\n").strip()


def parsed_flags() -> Flags:
    return Flags(__doc__)


@one_line
def main() -> None:
    """Writes the tables."""
    raw = [json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))
           for name in ("benchmarks", "gpu")]  # fmt: skip
    page = ROOT / "docs" / "speed.md"
    for name, text in blocks(*raw).items():
        begin, end = (mark.format(name) for mark in MARKS)
        replace_between(page, text, begin, end)
    print(page.relative_to(ROOT))


if __name__ == "__main__":
    parsed_flags().parse_args()
    sys.exit(main())

"""Writes docs/accelerators.md from results/accelerators.json."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from posenc_jax.backends.form_choice import DENSE_LOGITS, DENSE_LOGITS_ELSEWHERE, KERNEL_LOGITS
from scripts.accelerators import limits
from scripts.accelerators.chips import CHIPS

HEADS = 12
HEAD = """# Programs compiled for accelerators

Compiled ahead of time on a machine without an accelerator, by `scripts/compile_for.py`. **Time on
a TPU was not measured**; that on a GPU, as far as it was, is in [gpu.md](gpu.md). What the tables
do not have was not compiled for this page. The raw numbers are in
[results/accelerators.json](../results/accelerators.json); `make site` builds a page with a row for
each program, build/site/results/accelerators.html.

How to read the numbers:

- Memory is what the compiler allocates on one chip besides arguments and results. It is exact, as
  far as the compiler tells.
- Bytes and FLOPs are the compiler's count for one run. They are given only for programs without
  loops and Pallas kernels: the body of a loop would be counted once, a kernel's not at all. Bytes
  include arrays in the chip's own memory.
- Bundles are instructions that a core issues together. We count those of each instruction of the
  program, times the steps of its window and the passes of its loop. Where the passes are not known
  before the run, they count as one, and the number says "or more". Of blockwise attention we give
  one pass of the largest loop, divided by the heads: a head and a block of 512 x 512 logits. Of the
  kernel we give the same of each of its kernels, the forward one first: a block where every query
  sees every key, and after the slash a block with a mask. A traced bias (`fire`) is made for all
  heads at once, with its mask, in a loop: its passes are counted, and divided by the heads, and the
  number is that of every block. Loops inside one other instruction count once, and stalls and
  copies of memory are left out. So the number compares programs, and is no time.
- Kernels, of a GPU, count how often it starts one, times the passes of its loop. XLA chooses among
  kernels of one operation by timing them, which it cannot without the GPU: it takes its defaults.
- T x T counts arrays with two axes of the sequence that are written to memory. Of a model, whose
  widths are as long, only those count of which one axis is a multiple of the other.
- CPU s is the processor time of compiling, of all threads: on a machine with other work it
  says more than the time that passed. Of a GPU it is without ptxas, which is another process.

Attention is one layer over one sequence in bfloat16, 12 heads of 64, of 2,048 tokens in the dense
form and 8,192 in the others, causal. Backward is the gradient of the sum of the output by queries,
keys, values, the layer's input and the parameters. A step is one update of a decoder of width 768
on 8 windows of 2,048 bytes in bfloat16, with AdamW in float32; its name says the layers, the chips,
and how memory is saved: the state is whole on each chip or spread (`fsdp`), layers are computed
again in the backward pass (`remat`), or the windows are computed one after another (`accumulate`).
Layers are a loop, in which activations and norms are always computed again.
An evaluation is that of a decoder of width 128 with 2 layers in float32, on 131,072 tokens at once.
Reading is the forward pass and the loss of a released model in bfloat16 on one window of 8 times
its trained length, with blockwise attention: pythia-70m on one chip, Llama-2-7b spread over four.
An experiment's programs are those of its default config, 3 seeds in one program: a chunk of
training with RoPE (`multimodal`: M-RoPE), and the evaluation at its longest length.
"""
LIMITS = """What is asked of these programs, and the largest number that was measured. It says
nothing of programs that were not compiled. Memory is besides arguments and results, unless a row
counts them in: those of RoPE at 131,072 tokens are 805 MB forward and 1,409 MB backward. What takes
most is `pope`, whose queries and keys are wider, and `fope` and `string`, of which each head has
cosines and sines of its own. A traced bias costs what its own function does: FIRE's has 32 hidden
units for each pair of tokens, Swin V2's 512. A step that does not fit in the chip's 16 GB does not
compile.
"""
CHOICES = f"""## What `form="auto"` chooses

| compiled for | logits of one sequence, all heads | form |
|---|---|---|
| a CPU | up to {DENSE_LOGITS["cpu"]:,} | dense |
| a CPU | more | blockwise |
| a TPU or GPU | up to {DENSE_LOGITS_ELSEWHERE:,}, unless the next row says else | dense |
| one GPU, or each of several inside of `jax.shard_map`; queries in bfloat16 | more than {KERNEL_LOGITS["gpu"]:,} | kernel, if it takes the method and the bias has few operations |
| one TPU, or each of several inside of `jax.shard_map` | more than {DENSE_LOGITS_ELSEWHERE:,} | kernel, if it takes the method |
| otherwise | more than {DENSE_LOGITS_ELSEWHERE:,} | blockwise |

The kernel takes every method but those that read content, of which it takes `fox`. A method whose
scores read other keys is always dense. `form="dense"`, `"blockwise"` or `"kernel"`
makes `frame` take that form, or refuse it in one line. On a TPU the backward pass is one kernel where
the sums for the queries of a head, in float32, fit in a quarter of the vector memory: on a v5e up to
98,304 tokens of 64 channels, and with a traced bias, which is made of all heads at once, 8,192 tokens
of 12 such heads. Elsewhere it is two kernels, which make each block's logits twice. A traced bias of
more heads than the vector memory holds (on a v4 from 32 of 128 channels on) is refused. On a GPU the
kernel takes a bias of which a head reads up to 256 numbers. There it is chosen where it was measured
to be faster ([gpu.md](gpu.md)): in bfloat16, from 1,024 tokens of 12 heads on, and not for a bias of more
than 16 operations for a pair of tokens that has no row of offsets (`fire`), which is faster forward and
slower with the backward pass. It is written in Pallas' Triton, which is deprecated since JAX 0.11 and
warns at every call on JAX 0.12; we hide no warning. On a JAX without it blocks are chosen, and
`form="kernel"` is refused in one line; `posenc_jax/backends/target.py` is the one place that asks. Where nothing is added to bfloat16 logits (`rope`, `nope`), and no row is packed or
padded on its left, it is cuDNN's own; which of the two runs is decided when the program runs, from
the rows that it is given. To go back through either, the program keeps the outputs of both.

**Our kernel for a TPU has never run on a chip.** It is compiled for several of them, and its values and
gradients are tested where it is interpreted. Where nothing is added to the logits (`rope`, `nope`, `yarn`,
`partial`) and there is no sink, `auto` therefore takes JAX's splash attention on a TPU, which its authors
run and measure there: it masks segments and causality and skips blocks of other documents, with grouped
heads and a cap. Causal attention over tokens that are not stored in their order takes ours; which of the
two runs is decided when the program runs. So do some of the queries, other keys, and `jax.shard_map` that
checks over which axes arrays vary. Splash attention keeps heads of 64 channels in 128 lanes, and the
program keeps the outputs of both kernels: at 8,192 tokens, 12 heads of 64, `rope` forward and backward
needs .232 GB of a v5e, ours .017. `form="kernel"` is ours on every TPU.

Who has a chip can check every method in minutes, on a TPU or a GPU:

    python scripts/check_kernels.py

It compares outputs and gradients with dense attention in float32, prints the errors and times of both,
and ends with status 1 if one is wrong.
"""  # noqa: E501
COLUMNS = ("program", "memory, MB", "bytes", "FLOPs", "bundles", "T x T", "collectives", "CPU s")
GPU = tuple("kernels" if name == "bundles" else name for name in COLUMNS)


def page(raw: Mapping[str, Any]) -> str:
    """Returns the page in docs/: how to read the numbers, the choices, the limits, the coverage."""
    return _page(raw, _lead)


def whole(raw: Mapping[str, Any]) -> str:
    """Returns the page of the site, which has a row for each program too."""
    return _page(raw, _section)


def _page(raw: Mapping[str, Any], section: Callable[[str, Mapping[str, Any]], str]) -> str:
    asked = limits.table(raw["v5e"]["programs"]) if "v5e" in raw else []
    columns = "what", "limit", "measured", ""
    return "\n".join(
        [
            HEAD,
            CHOICES,
            f"## Limits on a v5e\n\n{LIMITS}\n{_table(columns, asked)}\n",
            *(section(chip, record) for chip, record in raw.items()),
        ]
    )


def _section(chip: str, record: Mapping[str, Any]) -> str:
    programs, columns = record["programs"], GPU if CHIPS[chip].backend == "gpu" else COLUMNS
    groups: dict[str, list[str]] = {}
    for name in sorted(programs):
        groups.setdefault(name.split("/")[0], []).append(name)
    row = lambda name: _row(name, programs[name], bundled=columns is COLUMNS)
    tables = [
        f"### {group}\n\n{_table(columns, map(row, names))}\n" for group, names in groups.items()
    ]
    return "\n".join([_lead(chip, record), *tables])


def _lead(chip: str, record: Mapping[str, Any]) -> str:
    programs = record["programs"]
    details = ", ".join(f"{key} {value}" for key, value in record["made"].items())
    failed = sum("failed" in found for found in programs.values())
    lead = f"{len(programs)} programs, of which {failed} failed. Last made with {details}.\n"
    return "\n".join([f"## {chip}\n", lead, _coverage(programs)])


def _coverage(programs: Mapping[str, Any]) -> str:
    """Returns how many methods were compiled in each form and direction, at its usual length."""
    columns = "form", "forward compiled", "failed", "backward compiled", "failed"
    rows = []
    for form in ("dense", "blockwise", "kernel"):
        row = [form]
        for way in ("forward", "backward"):
            failed = ["failed" in x for n, x in programs.items() if n.endswith(f"/{form}/{way}")]
            row += [str(len(failed) - sum(failed)), str(sum(failed))]
        rows.append(row)
    return _table(columns, rows) + "\n"


def _row(name: str, found: Mapping[str, Any], bundled: bool) -> Sequence[str]:
    short = name.split("/", 1)[1]
    if "failed" in found:
        return [short, f"failed: {found['failed']}", *[""] * (len(COLUMNS) - 2)]
    return [
        short,
        f"{found['temporary'] / 1e6:,.1f}",
        _scaled(found["bytes"]),
        _scaled(found["flops"]),
        _bundles(found["bundles"], per_head=bundled and "/blockwise/" in name),
        str(sum(n for kind, n in found["squares"].items() if _square(name, kind))),
        _collectives(found["collectives"]),
        str(found.get("cpu_seconds", "")),
    ]


def _square(name: str, kind: str) -> bool:
    """Whether an array "bf16[8,2048,3072]" of a program has two axes of the sequence."""
    if name.startswith("attention/"):
        return True
    *_, few, many = sorted(int(size) for size in kind.split("[")[1].rstrip("]").split(","))
    return many % few == 0


def _scaled(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def _bundles(found: Mapping[str, Any], per_head: bool) -> str:
    if found["kernels"]:
        return ", ".join("/".join(f"{n:,}" for n in sizes) for sizes in found["kernels"].values())
    if per_head and found["bodies"]:
        return f"{found['bodies'][0][0] / HEADS:,.0f}"
    known = all(passes for _, passes in found["bodies"])
    total = found["outside"] + sum(size * max(passes, 1) for size, passes in found["bodies"])
    return f"{total:,}" if known else f"{total:,} or more"


def _collectives(found: Mapping[str, Sequence[int]]) -> str:
    one = lambda kind, number, total, most: (
        f"{number} {kind}, {total / 1e6:,.1f} MB, largest {most / 1e6:,.1f}"
    )
    return "; ".join(one(kind, *sizes) for kind, sizes in found.items())


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of the columns in which a row has something."""
    table = [columns, *rows]
    kept = [n for n in range(len(columns)) if n == 0 or any(row[n] for row in table[1:])]
    line = lambda cells: "| " + " | ".join(cells[n] for n in kept) + " |"
    return "\n".join([line(columns), "|---" * len(kept) + "|", *map(line, table[1:])])

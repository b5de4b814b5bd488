"""Returns the page of results/gpu.json, and parts of it for docs/speed.md."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

HEADS, HEAD, TOKENS = 12, 64, 16384
HEAD_OF_PAGE = """# Speed on a GPU

Made by `python scripts/bench_gpu.py`, on a machine with a GPU that did nothing else; raw numbers in
{link}. What follows from them, and what was compiled without a GPU: [Speed](../speed.md).
{notes}"""
ATTENTION = """## Attention

Milliseconds of one call, causal, in bfloat16, 12 heads of 64; sequences of so many tokens, 16,384
tokens together. Backward is the forward pass and all gradients. The number is the median over the
rounds in which all took turns. In brackets, of the forward pass: TFLOP in a second, counting the
products of queries, keys and values that are not masked.

`jax.nn` is `jax.nn.dot_product_attention` with cuDNN.
"""
LONG = """## Attention of 65,536 tokens

As in the first table, with one sequence.
"""
FORMS = """## The forms of attention

As in the first table, of the forms of one method. The array of a bias was made before.
"""
ERRORS = """## What every method's kernel adds to the error

Error: |found - reference| / |reference|, of the output and of the worst gradient, among them those
of the parameters. The reference is dense attention in float32, for two sequences of 256 tokens in
bfloat16, the second of which is half padding. Beside it is the same of dense attention in bfloat16.
Parameters have noise of 0.3, since many methods start where they do nothing. Methods that add
nothing to logits run in cuDNN's kernels here, the others in Triton's.
"""
TIMES = """## How long every method's kernel takes

Milliseconds of one sequence of 8,192 tokens, the lower of the rounds.
"""
STEPS = """## A training step

Milliseconds of a step of a decoder of 12 layers of width 768 on 8 windows of 2,048 bytes in
bfloat16, by the form of attention, and thousands of bytes that it learns from in a second.
"""
HOPPER = """## The kernels for a Hopper GPU

As in the first table: kernels in Mosaic, which are asked by name alone, beside those in Triton.
"""
BOARD = """## The leaderboard

Trainings of the board in an hour: these methods on copying, of 3 learning rates and then of 5
seeds, from the command to the written report, compiling and tests included; XLA does not tune
kernels by timing them.
"""
SEEDS = """## Many seeds in one program

Milliseconds of a step of the default model, of so many seeds in one program, and of one of them.
"""


def page(raw: Mapping[str, Any], link: str) -> str:
    """Returns the site's page of all that was measured, part by part and GPU by GPU.

    link: to results/gpu.json.
    """
    missing = [name for name in SECTIONS if name not in raw]
    notes = f"\nNot measured yet: {', '.join(missing)}.\n" if missing else ""
    return "\n".join([HEAD_OF_PAGE.format(link=link, notes=notes), *parts(raw, SECTIONS)])


def parts(raw: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Returns the text and the tables of some parts; those that were not measured are left out."""
    paragraphs = []
    for part in names:
        text, rows = SECTIONS[part]
        if part in raw:
            paragraphs.append(text)
        for record in raw.get(part, {}).values():
            where = ", ".join(f"{key} {value}" for key, value in record["machine"].items())
            note = [record["note"] + "\n"] if "note" in record else []
            paragraphs += [f"{where[0].upper()}{where[1:]}.\n", *note, rows(record["found"]) + "\n"]
    return paragraphs


def _attention(by_contestant: Mapping[str, Any]) -> str:
    cases = [case for results in by_contestant.values() for case in results if case != "failed"]
    lengths = sorted({int(case.split("/")[1]) for case in cases})
    columns = [f"{way}, {length:,}" for length in lengths for way in ("forward", "backward")]

    def cell(cases: Mapping[str, Any], length: int, way: str) -> str:
        times = cases.get(f"{way}/{length}")
        if times is None:
            return "failed" if cases["failed"].get(f"{way}/{length}") else ""
        ms, sequences = median(times), max(1, TOKENS // length)
        flop = 2 * sequences * HEADS * HEAD * length**2
        return f"{ms:.2f}" + (f" ({flop / ms / 1e9:.0f})" if way == "forward" else "")

    rows = [
        [name, *(cell(results, n, way) for n in lengths for way in ("forward", "backward"))]
        for name, results in by_contestant.items()
        if len(results) > 1 or results["failed"]
    ]
    return _table(["", *columns], rows) + _failures(by_contestant)


def _errors(by_method: Mapping[str, Any]) -> str:
    columns = ["", "output, kernel", "dense", "gradient, kernel", "dense"]

    def row(name: str, error: Mapping[str, Any]) -> list[str]:
        shown = [
            error[form][what] for what in ("output", "gradient") for form in ("kernel", "dense")
        ]
        return [name, *("" if x is None else f"{x:.4f}" for x in shown)]

    return _by_method(
        columns, {name: row(name, x[0]) for name, x in _cases(by_method).items()}, by_method
    )


def _times(by_method: Mapping[str, Any]) -> str:
    cases = _cases(by_method)
    names = {case.split("/")[0] for case in cases}

    def row(name: str) -> list[str]:
        times = [cases.get(f"{name}/{way}") for way in ("forward", "backward")]
        return [name, *(f"{min(x):.2f}" if x else "" for x in times)]

    return _by_method(["", "forward", "backward"], {name: row(name) for name in names}, by_method)


def _cases(by_process: Mapping[str, Any]) -> dict[str, Any]:
    """Returns case -> what was measured, of all processes together."""
    return {
        case: v
        for results in by_process.values()
        for case, v in results.items()
        if case != "failed"
    }


def _by_method(
    columns: list[str], rows: Mapping[str, list[str]], by_process: Mapping[str, Any]
) -> str:
    table = _table(columns, [rows[name] for name in sorted(rows)])
    return f"{len(rows)} methods.\n\n" + table + _failures(by_process)


def _steps(by_process: Mapping[str, Any]) -> str:
    rows = [
        [name, f"{median(times):.1f}", f"{TOKENS / median(times):.0f}"]
        for name, results in by_process.items()
        for form, times in results.items()
        if form != "failed"
    ]
    return _table(["", "ms a step", "thousand bytes in a second"], rows) + _failures(by_process)


def _board(by_process: Mapping[str, Any]) -> str:
    rows = [
        [names, f"{trainings:.0f}", f"{3600 * trainings / rate:.0f}", f"{rate:,.0f}"]
        for names, results in by_process.items()
        for rate, trainings in results.get("an hour", ())
    ]
    return _table(["methods", "trainings", "seconds", "in an hour"], rows) + _failures(by_process)


def _seeds(by_process: Mapping[str, Any]) -> str:
    rows = [
        [name, seeds, f"{median(times):.2f}", f"{median(times) / int(seeds):.2f}"]
        for name, results in by_process.items()
        for seeds, times in results.items()
        if seeds != "failed"
    ]
    return _table(["", "seeds", "a step", "of one seed"], rows) + _failures(by_process)


def _failures(by_process: Mapping[str, Any]) -> str:
    """Returns a list of what was not measured, by reason."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for name, results in by_process.items():
        for case, why in results["failed"].items():
            where = by_reason.setdefault(_reason(why), {})
            where.setdefault(name, []).append("" if case == "all" else case)
    lines = []
    for why, where in by_reason.items():
        shown = [f"{name} {', '.join(cases)}".strip() for name, cases in where.items()]
        lines.append(f"- {why}: {'; '.join(shown)}")
    return "\nMissing:\n\n" + "\n".join(lines) + "\n" if lines else ""


def _reason(why: str) -> str:
    """Returns why something failed; an out-of-memory error becomes one phrase for all libraries."""
    full = any(word in why for word in ("RESOURCE_EXHAUSTED", "OutOfMemoryError: CUDA"))
    return "no memory was left beside the other contestants" if full else why


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


SECTIONS = {"attention": (ATTENTION, _attention), "long": (LONG, _attention),
            "forms": (FORMS, _attention), "errors": (ERRORS, _errors),
            "times": (TIMES, _times), "steps": (STEPS, _steps), "seeds": (SEEDS, _seeds),
            "board": (BOARD, _board), "hopper": (HOPPER, _attention)}  # fmt: skip

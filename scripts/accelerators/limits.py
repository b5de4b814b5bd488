"""What is asked of the programs for a TPU v5e, and what the record has of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Programs = Mapping[str, Mapping[str, Any]]
SHORT = {"cope": 2.5e8, "deberta": 1.8e8, "swin_2d": 4.0e7}  # a tenth of before
LONG = 131072


class Limit(NamedTuple):
    """A quantity of some programs of which none may exceed `most`, in units of `unit`."""

    what: str
    most: float
    of: Callable[[Programs], Iterable[tuple[str, float]]]
    unit: str = ""
    scale: float = 1.0


def table(programs: Programs) -> list[Sequence[str]]:
    """Returns the rows of the table: what, limit, the largest number measured, met or not."""
    return [_row(limit, programs) for limit in LIMITS]


def _row(limit: Limit, programs: Programs) -> Sequence[str]:
    compiled = {name: found for name, found in programs.items() if "failed" not in found}
    measured = sorted(limit.of(compiled), key=lambda pair: pair[1])
    shown = lambda x: f"{_rounded(x / limit.scale)} {limit.unit}".strip()
    if not measured:
        return limit.what, shown(limit.most), "no number", "not known"
    name, worst = measured[-1]
    of = f"{name}, the most of {len(measured)}" if len(measured) > 1 else name
    met = "met" if worst <= limit.most else "**missed**"
    return limit.what, shown(limit.most), f"{shown(worst)} ({of})", met


def _rounded(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def _each(starts: str, ends: str, value: Callable[[Mapping[str, Any]], float | None]):
    """Returns a function that yields the value of the programs with such names."""

    def of(programs: Programs):
        for name, found in programs.items():
            number = value(found)
            if name.startswith(starts) and name.endswith(ends) and number is not None:
                yield name.removeprefix("attention/"), number

    return of


def _kernel(names: Sequence[str], way: str, first: int, last: int, mask: bool):
    """As `_each`: bundles of the kernels `first` to `last` of a program, for a block."""

    def of(programs: Programs):
        for name in names:
            program = f"attention/{name}/kernel/{way}"
            if program in programs:
                sizes = list(programs[program]["bundles"]["kernels"].values())[first:last]
                yield program.removeprefix("attention/"), sum(size[mask] for size in sizes)

    return of


def _squares(programs: Programs):
    for name, found in programs.items():
        if name.startswith("attention/") and ("/blockwise/" in name or "/kernel/" in name):
            yield name.removeprefix("attention/"), sum(found["squares"].values())


def _deeper(programs: Programs):
    for name, found in programs.items():
        one = programs.get(name.replace("/12/", "/1/", 1), {})
        if name.startswith("step/") and "/12/" in name and "cpu_seconds" in one:
            yield name, found["cpu_seconds"] / one["cpu_seconds"]


def _in_all(found: Mapping[str, Any]) -> float:
    return found["arguments"] + found["outputs"] + found["temporary"]


def _temporary(found: Mapping[str, Any]) -> float:
    return found["temporary"]


def _bytes(found: Mapping[str, Any]) -> float | None:
    return found["bytes"]


def _all_reduce(found: Mapping[str, Any]) -> float:
    return found["collectives"].get("all-reduce", (0, 0, 0))[2]


RELATIVE = (
    *("t5", "alibi", "kerple_log", "kerple_power", "bam"),
    *("clipped", "sandwich", "mlp", "window"),
)
TRACED = "fire", "swin_2d", "swin_v2"  # of which no row of offsets is made
LIMITS = [
    Limit("T x T arrays, blockwise and kernel", 0, _squares),
    *[
        Limit(f"bundles, kernel {way}, {bias}", most, _kernel(names, way, *which, mask))
        for bias, names, mask, forward in (
            ("a relative bias", RELATIVE, False, 1780),
            ("a relative bias, a block with a mask", RELATIVE, True, 1780),
            *((f"the traced bias of {name}", (name,), False, 2400) for name in TRACED),
        )
        for way, most, which in (("forward", forward, (0, 1)), ("backward", 3550, (1, 3)))
    ],
    *[
        Limit(
            f"memory, kernel {way}, {LONG:,} tokens", most,
            _each("attention/", f"/kernel/{way}/{LONG}", _temporary), "MB", 1e6,
        )
        for way, most in (("forward", 1.0e9), ("backward", 1.8e9))
    ],
    Limit(
        "memory with arguments and results, kernel backward, 16,384 tokens", 1.86e9,
        _each("attention/", "/kernel/backward/16384", _in_all), "MB", 1e6,
    ),
    Limit(
        "memory, dense t5, 2,048 tokens", 0.3 * 2**30,
        _each("attention/t5/dense/forward", "forward", _temporary), "MB", 1e6,
    ),
    Limit(
        "bytes, dense t5, 2,048 tokens", 1.2e9,
        _each("attention/t5/dense/forward", "forward", _bytes), "MB", 1e6,
    ),
    Limit(
        "memory, liere, 256 tokens", 20e6,
        _each("attention/liere/", "forward/256", _temporary), "MB", 1e6,
    ),
    Limit(
        "processor time to compile liere, 256 tokens", 30,
        _each("attention/liere/", "forward/256", lambda found: found.get("cpu_seconds")), "s",
    ),
    *[
        Limit(
            f"bytes, {name}, 256 tokens", most,
            _each(f"attention/{name}/", "forward/256", _bytes), "MB", 1e6,
        )
        for name, most in SHORT.items()
    ],
    Limit("largest all-reduce under FSDP", 1e6, _each("step/", "/fsdp", _all_reduce), "MB", 1e6),
    Limit("processor time to compile 12 layers, by that of one", 2, _deeper),
    *[
        Limit(
            f"memory with arguments and results, step of 12 layers, {way}", 16e9,
            _each("step/", f"/12/1/{way}", _in_all), "MB", 1e6,
        )
        for way in ("whole", "remat")
    ],
]  # fmt: skip

"""Our settings: the task, the model, the sizes and the budget of a training, as data."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

NOTHING: Mapping[str, Any] = MappingProxyType({})


class HeldOut(NamedTuple):
    """Held-out examples.

    sizes: the smallest and the largest size.
    options: of the task, where they differ from those in training.
    view: of images, see `posenc_jax.lab.tasks.images`.
    """

    sizes: tuple[int, int]
    options: Mapping[str, Any] = NOTHING
    view: str = "counted"


class Setting(NamedTuple):
    """A task, a model and a budget, for several methods.

    sizes: the smallest and the largest size in training.
    tests: by name; "trained" are the sizes in training.
    learned: the metric, and its value in trained sizes from which on a method has learned the task;
      None: every method counts, of text, and where the paper compares how well methods learn.
    reach: positions that a table has.
    rates: learning rates to try in place of the config's.
    """

    task: str
    options: Mapping[str, Any]
    sizes: tuple[int, int]
    tests: Mapping[str, HeldOut]
    learned: tuple[str, float] | None
    steps: int
    kind: Literal["decoder", "encoder"] = "decoder"
    layers: int = 2
    heads: int = 4
    width: int = 64
    batch: int = 32
    reach: int = 512
    rates: tuple[float, ...] = ()


LEARNED = ("exact_match", 0.95)


def strings(task: str, options: Mapping[str, Any], steps: int) -> Setting:
    """Strings of up to 20 symbols, tested at 21 to 40, as in Kazemnejad et al. 2023."""
    tests = {"trained": HeldOut((1, 20)), "longer": HeldOut((21, 40))}
    return Setting(task, options, (1, 20), tests, LEARNED, steps)


def text(kind: Literal["decoder", "encoder"], masked: float, longer: Mapping[str, int]) -> Setting:
    """Windows of 64 bytes of Python source, predicted byte by byte."""
    tests = {"trained": HeldOut((64, 64)), **{name: HeldOut((n, n)) for name, n in longer.items()}}
    return Setting(
        "stdlib", {"stretch": 2**15, "masked": masked}, (64, 64), tests, None, 4000,
        kind=kind, reach=64,
    )  # fmt: skip


RANDOMIZED = ("reverse", "duplicate_string", "odds_first", "binary_addition", "stack_manipulation")


def randomized(task: str) -> Setting:
    """A task of Deletang et al. 2022 on sizes to 20; positions that are drawn are below 256."""
    sizes = {"binary_addition": 3, "stack_manipulation": 2}.get(task, 1), 20
    tests = {"trained": HeldOut(sizes), "longer": HeldOut((21, 40))}
    options = {"alphabet": 2} if task == "reverse" else {}
    return Setting(task, options, sizes, tests, ("token_accuracy", 0.9), 3000, reach=256)


def addition(groups: str, digits: int, steps: int, **fields: Any) -> Setting:
    """Sums of two numbers, the least significant digit first, tested to three times the digits."""
    tests = {"trained": HeldOut((1, digits)), "longer": HeldOut((digits + 1, 3 * digits))}
    options = {"reverse": True, "groups": groups}
    return Setting("addition", options, (1, digits), tests, steps=steps, batch=64, **fields)


# Lines of 32 instructions, four of five of them ignored; in the sparse test 49 of 50.
FLIP_FLOP = Setting(
    "flip_flop", {"ignore": 0.8}, (32, 32),
    {"trained": HeldOut((32, 32)), "sparse": HeldOut((32, 32), {"ignore": 0.98})},
    None, 4000, layers=1, heads=2, reach=64,
)  # fmt: skip
SETTINGS: dict[str, Setting] = {
    "copy_repeated": strings("copy", {"symbols": "repeated"}, 2000),
    "copy_random": strings("copy", {}, 3000),
    "copy_twice": strings("duplicate_string", {"alphabet": 100}, 4000),
    "reverse": strings("reverse", {}, 4000),
    **{f"randomized_{task}": randomized(task) for task in RANDOMIZED},
    "text": text("decoder", 0.0, {"2x": 128, "7x": 448}),
    "masked_text": text("encoder", 0.15, {}),
    "flip_flop": FLIP_FLOP,
    "flip_flop_two_layers": FLIP_FLOP._replace(layers=2),
    # One layer without positions cannot add (Cho et al. 2024), so what was not learned counts.
    "coupled": addition("significance", 10, 6000, learned=None, layers=1, reach=128,
                        rates=(8e-3, 4e-3)),
    "abacus": addition("place", 6, 4000, learned=LEARNED, reach=64),
    "abacus_longer": addition("place", 6, 6000, learned=LEARNED, reach=64),
    "digits": Setting(
        "digits", {"order": "grid"}, (4, 4),
        {"trained": HeldOut((4, 4)), "larger": HeldOut((7, 7)),
         "larger, interpolated": HeldOut((7, 7), view="interpolated")},
        ("accuracy", 0.9), 2000, kind="encoder", width=48, batch=64, reach=4,
    ),
}  # fmt: skip

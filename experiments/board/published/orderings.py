"""The published orderings: methods with their numbers in one setting of a paper, as data.

A new row of the page is one entry of `ORDERINGS`, and of `SETTINGS` if no setting of ours fits.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from experiments.board.published.settings import RANDOMIZED
from posenc_jax.lab.metrics import Direction


class Ordering(NamedTuple):
    """Methods in the order of a paper, and where we measure them.

    paper: authors, year and arXiv id.
    metric: the paper's metric, and its setting in words.
    published: method -> the paper's number.
    better: which of the paper's numbers are better.
    setting, test: the name of our setting, and of its test.
    ours: our metric.
    differs: what differs between the two settings.
    tests: method -> the name of another test that this method takes.
    """

    paper: str
    metric: str
    published: Mapping[str, float]
    better: Direction
    setting: str
    test: str
    ours: str
    differs: str
    tests: Mapping[str, str] = MappingProxyType({})


CHO = "Cho et al. 2024, arXiv 2405.20671"
MCLEISH = "McLeish et al. 2024, arXiv 2405.17399"
RUOSS = "Ruoss et al. 2023, arXiv 2305.16843"
KAZEMNEJAD = "Kazemnejad et al. 2023, arXiv 2305.19466"
HAVIV = "Haviv et al. 2022, arXiv 2203.16634"
PRESS = "Press et al. 2022, arXiv 2108.12409"
COPE = "Golovneva et al. 2024, arXiv 2405.18719"
PATH = "Yang et al. 2025, arXiv 2505.16381"
BARBERO = "Barbero et al. 2025, arXiv 2410.06205"
HEO = "Heo et al. 2024, arXiv 2403.13298"

SMALL_DECODER = "a decoder of 2 layers and width 64 in place of one of 107M parameters"
BYTES = "bytes of Python source in place of words of WikiText-103"
TEXT_DECODER = f"{BYTES}; a decoder of 2 layers and width 64 on windows of 64 bytes"


def _strings(
    setting: str, what: str, published: Mapping[str, float], differs: str = ""
) -> Ordering:
    """A task of Kazemnejad et al., from the raw results that they published."""
    return Ordering(
        KAZEMNEJAD,
        f"exact match, {what}, trained on 1 to 20 symbols, tested on 21 to 40; mean of 3 seeds and "
        "of all sizes, from the raw results in their code",
        published, "higher", setting, "longer", "exact_match",
        f"{SMALL_DECODER}; {differs}symbols are tokens of our own, not of a T5 vocabulary",
    )  # fmt: skip


def _press(test: str, tokens: int, ratio: str, published: Mapping[str, float]) -> Ordering:
    """One length of the table of Press et al. with models trained on 512 tokens."""
    return Ordering(
        PRESS, f"perplexity on WikiText-103 at {tokens} tokens, {ratio} the trained 512; 247M",
        published, "lower", "text", test, "bits_per_byte",
        f"{TEXT_DECODER}, 512 tokens there; windows without overlap, as there",
    )  # fmt: skip


def _code(test: str, tokens: str, published: Mapping[str, float]) -> Ordering:
    """A column of tables 3 and 4 of Kazemnejad et al., models of source code."""
    return Ordering(
        KAZEMNEJAD, "perplexity of the last 200 tokens of files of source code of 2750 to 3000 "
        f"tokens, context {tokens}; 1.3B",
        published, "lower", "text", test, "bits_per_byte",
        "bytes of Python source in place of tokens of several languages; a decoder of 2 layers and "
        "width 64 on windows of 64 bytes, of which all are scored",
    )  # fmt: skip


def _flip_flop(
    paper: str,
    test: str,
    metric: str,
    published: Mapping[str, float],
    differs: str,
    setting: str = "flip_flop",
) -> Ordering:
    """An error of a paper on the flip-flop task of Liu et al. 2023, arXiv 2306.00946."""
    return Ordering(
        paper, f"error of the bits after a read, in %, {metric}", published, "lower", setting,
        test, "token_accuracy",
        f"lines of 32 instructions, 256 in Liu et al. 2023, whose task it is; {differs}",
    )  # fmt: skip


def _ruoss(task: str) -> Ordering:
    """The abstract of Ruoss et al.: 12 points of accuracy more with randomized positions."""
    plain = ("sinusoidal", "rope")
    return Ordering(
        RUOSS,
        "the order alone: with randomized positions accuracy is 12.0 points higher, the mean of 15 "
        "tasks, this one among them, trained on sizes to 40, tested at 41 to 500",
        {**{f"randomized+{name}": 12.0 for name in plain}, **dict.fromkeys(plain, 0.0)},
        "higher", f"randomized_{task}", "longer", "token_accuracy",
        "a causal decoder of 2 layers and 4 heads in place of an encoder of 5 layers and 8 heads; "
        "sizes to 20, tested at 21 to 40",
    )  # fmt: skip


def _abacus(setting: str, method: str, differs: str = "") -> Ordering:
    """McLeish et al.: Abacus embeddings against the best relative methods before."""
    return Ordering(
        MCLEISH,
        "the order alone, exact match of sums longer than the trained 20 digits: higher with "
        "Abacus embeddings than with the best relative methods before, FIRE and RoPE",
        {method: 1.0, "fire": 0.0, "rope": 0.0},
        "higher", setting, "longer", "exact_match",
        "a decoder of 2 layers and width 64 in place of 16 layers; 1 to 6 digits, tested at 7 to "
        f"18; the numbers of one sum have equally many digits{differs}",
    )  # fmt: skip


def _heo(
    test: str, size: str, published: Mapping[str, float], differs: str = "", **more: Any
) -> Ordering:
    """One resolution of the table of Heo et al., in their code's README."""
    return Ordering(
        HEO, f"top-1 accuracy on ImageNet-1k in % of DeiT-III-S, trained at 224, tested at {size}",
        published, "higher", "digits", test, "accuracy",
        "8 x 8 digits in patches of 2 pixels, 16 of them, in place of ImageNet in 196 patches; "
        "the learned positions are a vector for the row and one for the column, side by side, not "
        f"one for each patch{differs}", **more,
    )  # fmt: skip


SPARSE = "on sparse lines (98% ignored)"
COPE_FLIP_FLOP = {"cope": 4.9, "rope": 20.3, "learned": 21.7}
LARGER = {"mixed": 81.8, "axial": 80.0, "learned_2d": 79.4}
ORDERINGS: dict[str, Ordering] = {
    "copy_repeated": _strings(
        "copy_repeated", "copying one symbol that is repeated",
        {"nope": 0.986, "t5": 0.771, "alibi": 0.289, "rope": 0.0, "sinusoidal": 0.0},
    ),
    "copy_random": _strings(
        "copy_random", "copying random symbols",
        {"t5": 0.419, "alibi": 0.331, "nope": 0.305, "sinusoidal": 0.028, "rope": 0.011},
    ),
    "copy_twice": _strings(
        "copy_twice", "writing random symbols twice",
        {"alibi": 0.569, "t5": 0.524, "nope": 0.431, "rope": 0.043, "sinusoidal": 0.040},
        "no token between the two copies, one there; ",
    ),
    "reverse": _strings(
        "reverse", "reversing random symbols",
        {"t5": 0.242, "nope": 0.230, "alibi": 0.171, "rope": 0.078, "sinusoidal": 0.023},
    ),
    **{f"randomized_{task}": _ruoss(task) for task in RANDOMIZED},
    "haviv_causal": Ordering(
        HAVIV, "perplexity of causal language models on WikiText-103; 247M, 512 tokens",
        {"alibi": 19.71, "sinusoidal": 20.16, "learned": 20.42, "nope": 20.97},
        "lower", "text", "trained", "bits_per_byte", f"{TEXT_DECODER}, 512 tokens there",
    ),
    "haviv_masked": Ordering(
        HAVIV, "perplexity of masked language models (RoBERTa large) on the Pile, 128 tokens",
        {"alibi": 4.00, "learned": 4.06, "sinusoidal": 4.07, "nope": 147.18},
        "lower", "masked_text", "trained", "bits_per_byte",
        "bytes of Python source, 15% of them hidden; an encoder of 2 layers and width 64 on "
        "windows of 64 bytes",
    ),
    "press_trained": _press(
        "trained", 512, "that is",
        {"t5": 19.65, "alibi": 19.73, "sinusoidal": 20.05, "rope": 20.07},
    ),
    "press_2x": _press(
        "2x", 1012, "twice", {"alibi": 18.73, "t5": 18.79, "rope": 21.37, "sinusoidal": 43.54}
    ),
    "press_7x": _press(
        "7x", 3512, "7 times", {"alibi": 18.40, "t5": 22.91, "rope": 35.54, "sinusoidal": 178.97}
    ),
    "cope_text": Ordering(
        COPE, "perplexity on WikiText-103; 124M, 1024 tokens",
        {"cope": 23.46, "shaw": 23.81, "learned": 24.87},
        "lower", "text", "trained", "bits_per_byte",
        f"{TEXT_DECODER}, 1024 tokens there; relative positions are here those of shaw",
    ),
    "code_trained": _code(
        "trained", "1024, the trained length", {"rope": 2.607, "nope": 2.666, "alibi": 2.735}
    ),
    "code_2x": _code(
        "2x", "2048, twice the trained length",
        {"alibi": 42.951, "nope": 151.810, "rope": 676.882},
    ),
    "p_rope_text": Ordering(
        BARBERO, "validation perplexity on English Wikipedia; Gemma 2B, 8192 tokens, 10,000 steps",
        {"p_rope": 4.4414, "rope": 4.4627, "nope": 4.8594},
        "lower", "text", "trained", "bits_per_byte",
        "bytes of Python source; a decoder of 2 layers and width 64 on windows of 64 bytes, 8192 "
        "tokens there",
    ),
    "cope_flip_flop": _flip_flop(
        COPE, "sparse", SPARSE, COPE_FLIP_FLOP,
        "one layer of width 64, since two layers with rope make no error at this length",
    ),
    "cope_flip_flop_two_layers": _flip_flop(
        COPE, "sparse", SPARSE, COPE_FLIP_FLOP,
        "two layers of width 64, to look for the cause of the result with one, where a bit cannot "
        "know which instruction stands before it",
        setting="flip_flop_two_layers",
    ),
    "path_flip_flop": _flip_flop(
        PATH, "sparse", f"{SPARSE}, one layer and two heads",
        {"path": 0.0001, "fox": 36.3, "stick_breaking": 38.9, "rope": 40.3}, "width 64",
    ),
    "path_flip_flop_trained": _flip_flop(
        PATH, "trained", "on lines as in training, one layer and two heads",
        {"path": 0.0, "rope": 6.9, "fox": 8.3, "stick_breaking": 9.6}, "width 64",
    ),
    "coupled_addition": Ordering(
        CHO,
        "the order alone, exact match of sums of up to 200 digits, trained on 1 to 30: above 95% "
        "with coupled positions, 0 without positions or with learned ones from a random start",
        {"coupled+learned": 95.0, "nope": 0.0, "shifted+learned": 0.0},
        "higher", "coupled", "longer", "exact_match",
        "width 64 in place of 1024; 1 to 10 digits, tested at 11 to 30; the numbers of one sum "
        "have equally many digits; methods that do not learn the trained sizes count",
    ),
    "abacus_addition": _abacus("abacus", "abacus+learned"),
    "abacus_fire_addition": _abacus(
        "abacus_longer", "fire+abacus+learned",
        "; as abacus_addition, but with FIRE beside the places of digits, as the paper also has "
        "it, and half more steps, to look for the cause of its result",
    ),
    "heo_trained": _heo(
        "trained", "224", {"mixed": 80.9, "axial": 80.9, "learned_2d": 80.4}
    ),
    "heo_larger": _heo(
        "larger", "384", LARGER,
        "; 7 patches a side in place of 4 (24 in place of 14 there), where positions of rotary "
        "methods count on and those of learned ones are interpolated, as there",
        tests={"learned_2d": "larger, interpolated"},
    ),
    "heo_larger_interpolated": _heo(
        "larger, interpolated", "384", LARGER,
        "; as heo_larger, but positions are interpolated for all methods, to look for the cause of "
        "its result",
    ),
}  # fmt: skip

NO_NUMBERS = "its numbers are in figures, or in tables that no public text confirms"
# What of these papers has no row -> why.
LEFT_OUT = {
    "Ruoss et al. 2023, the numbers of each task": NO_NUMBERS,
    "Cho et al. 2024 and McLeish et al. 2024, the numbers of each length": NO_NUMBERS,
    "Lin et al. 2025 (arXiv 2503.02130), FoX beyond the trained length": NO_NUMBERS,
    "Golovneva et al. 2024, selective copy": NO_NUMBERS,
    "Kazemnejad et al. 2023, sum": "its raw results are not in their code",
}

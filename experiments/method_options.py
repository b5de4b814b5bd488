"""The options of a method in a setting: the trained window, the longest test, the width of a head
and whether the model is causal.

The library's defaults are those of papers, for windows of hundreds or thousands of tokens. In a
window of 64, thresholds of 512 are never reached, rows of tables are never trained, and pairs of
channels that turn once in 10,000 tokens do not turn. `options` gives what suits the setting; an
option that the user states always wins.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from posenc_jax import encodings

BASE = 10_000.0
PAIRS = 4  # of channels that `partial` turns, at least


class Setting(NamedTuple):
    """What options depend on.

    window:  W, tokens of the longest example in training.
    longest: T, tokens of the longest test.
    head:    C, the width of a head.
    causal:  whether a token sees only those before it.
    base:    of rotary methods.
    """

    window: int
    longest: int
    head: int
    causal: bool
    base: float = BASE


def options(
    name: str, setting: Setting, stated: Mapping[str, Any], others: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The options of a method, or of a chain "a+b", which takes no others.

    A stated `length`, the window that weights were trained on before they are extended, is the
    window of the setting, and a stated `base` its base.

    Args:
      stated: options of the user, which win.
      others: values for options that no row of `RULES` gives, by the option's name.
    """
    chosen = dict(others or {})
    setting = setting._replace(
        window=stated.get("length", setting.window), base=stated.get("base", setting.base)
    )
    for part in reversed(encodings.cards(name)):  # the first part of a chain has the last word
        if part.name in RULES:
            chosen |= RULES[part.name](setting)
    return encodings.taken_by(name, chosen | dict(stated))


def alternatives(name: str, setting: Setting) -> list[dict[str, Any]]:
    """Options to try beside those of `options`, each a dictionary to state; {} is the first.

    Of rotary methods with a base of 10,000 two others: `turning_base` of the window, and
    `least_base` of the longest test. With the first one all pairs of `p_rope` turn in the window,
    which is `rope`.
    """
    tried: list[dict[str, Any]] = [{}]
    for part in encodings.cards(name):
        if part.kind == "rotary" and part.defaults.get("base") == BASE:
            tried += [
                {"base": base}
                for base in bases(setting)
                if part.name != "p_rope" or _p_rope(setting._replace(base=base))["share"] < 1
            ]
        tried += [dict(more) for more in ALTERNATIVES.get(part.name, lambda s: ())(setting)]
    return tried


def bases(setting: Setting) -> list[float]:
    """Bases of rotary methods that suit the setting better than 10,000, ascending."""
    fits = turning_base(setting.window, setting.head), least_base(setting.longest, setting.head)
    return sorted({round(base, 1) for base in fits if base is not None})


def turning_base(window: int, head: int) -> float:
    """The largest base of which every pair of a head's channels makes a turn in the window."""
    return max((window / (2 * math.pi)) ** (head / max(head - 2, 1)), 2.0)


@functools.lru_cache
def least_base(longest: int, head: int) -> float | None:
    """The least base that a window of `longest` tokens needs by Men et al. 2024 (arXiv 2405.14591);
    None: there is none below 1e8.

    With it a key that is alike is preferred to any other, on average, wherever in the window it
    stands: sum_k cos(m base^(-2k / C)) >= 0 for all m from 0 to `longest`, over the C / 2 pairs.
    Their fit .0424 L^1.628 is of heads of 128 channels; narrower ones need more.
    """
    exponent_K = -np.arange(0, head, 2) / head
    sums = lambda base, far_M: np.cos(far_M[:, None] * base**exponent_K).sum(axis=1)
    every_M = np.arange(longest + 1)
    few_M = every_M[:: max(1, longest // 64)]  # which refute most bases
    for base in np.geomspace(2.0, 1e8, 3500):
        if (sums(base, few_M) >= 0).all() and (sums(base, every_M) >= 0).all():
            return float(base)
    return None


def _t5(s: Setting) -> dict[str, Any]:
    # A bucket of its own for half of the distances on a side is the most that a window needs.
    most = max(s.window, 2) if s.causal else 2 * max(s.window, 2)
    buckets = min(32, most - most % 2)
    return {"bidirectional": not s.causal, "buckets": buckets, "distance": max(s.window, 2)}


def _deberta(s: Setting) -> dict[str, Any]:
    buckets = s.window - s.window % 2 if s.window >= 4 else 0
    return {"buckets": buckets, "distance": max(s.window, 1)}


def _partial(s: Setting) -> dict[str, Any]:
    return {"share": min(1.0, max(0.25, 2 * PAIRS / s.head))}


def _p_rope(s: Setting) -> dict[str, Any]:
    pairs = s.head // 2
    waves = [2 * math.pi * s.base ** (n / pairs) for n in range(pairs)]
    turning = max(1, sum(wave < 1.01 * s.window for wave in waves))  # `bases` are rounded
    # Between two whole numbers of pairs: the method rounds down.
    return {"share": min(1.0, (turning + 0.5) / pairs)}


def _window(s: Setting) -> int:
    return max(2, s.window // 2)


def _ramp(s: Setting) -> dict[str, Any]:
    return {"beta_fast": min(max(2.0, s.window / 16), 32.0), "beta_slow": 1.0}  # 32: the paper's


def _length(s: Setting) -> dict[str, Any]:
    return {"length": max(s.window, 2)}


def _turns(s: Setting) -> dict[str, Any]:
    return {"length": max(s.window, math.ceil(2 * math.pi))}  # the fastest pair makes a turn


def _half(option: str) -> Callable[[Setting], dict[str, Any]]:
    return lambda s: {option: _window(s)}


def _limit(s: Setting) -> dict[str, Any]:
    return {"limit": s.longest}


def _extended(s: Setting) -> dict[str, Any]:
    """Of layers with YaRN, in training: not extended."""
    return {"window": _window(s), "length": s.window}


# Method -> its options in a setting.
RULES: dict[str, Callable[[Setting], dict[str, Any]]] = {
    "t5": _t5,
    "deberta": _deberta,
    "partial": _partial,
    "p_rope": _p_rope,
    "shaw": _half("distance"),
    "clipped": _half("distance"),
    "window": _half("distance"),
    "fire": lambda s: {"threshold": max(1.0, s.window / 2)},
    "content_bias": lambda s: {"distance": s.window},
    **dict.fromkeys(("cope", "clex", "logn", "drope"), _length),
    **dict.fromkeys(("hope", "fope"), _turns),
    **dict.fromkeys(("yarn", "ntk_by_parts", "resonance"), _ramp),
    "local_global": _half("window"),
    **dict.fromkeys(("gpt_oss", "olmo3"), _extended),
    "irope": lambda s: {"floor": s.window},
    **dict.fromkeys(("randomized", "pose"), _limit),
    "path": lambda s: {"rank": min(32, s.head)},
}
# Tables that end within the window: the last row stands for all that is further, so that it must be
# trained on more than the few pairs of tokens at both ends of the longest lines.
ALTERNATIVES: dict[str, Callable[[Setting], tuple[dict[str, Any], ...]]] = {
    "t5": lambda s: ({"distance": _window(s)},),
    "deberta": lambda s: ({"buckets": 0, "distance": _window(s)},),
    "alibi": lambda s: ({"learned": True},),
    # Gates that forget over the window, not over two tokens, before they are trained.
    "fox": lambda s: ({"gate_bias": round(math.log(max(s.window, 2)), 2)},),
    "p_rope": lambda s: ({"share": 0.75},),
    **dict.fromkeys(
        ("shaw", "clipped"),
        lambda s: ({"distance": max(1, s.window // 4)}, {"distance": max(1, 3 * s.window // 4)}),
    ),
}

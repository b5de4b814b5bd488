"""Random permutations that are computed at any place, without a list and without state.

A Feistel network (Luby and Rackoff 1988) permutes the numbers of so many bits. Numbers that are
not below `count` are permuted again until they are ("cycle walking", Black and Rogaway 2002), which
takes less than twice on average, because `count` is more than half of the numbers.
"""

from typing import Any

import numpy as np

ROUNDS = 8
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def permuted(index_N: np.ndarray, count: int, seed: int, epoch_N: np.ndarray) -> np.ndarray:
    """Where the permutation of one seed and epoch takes each index: int64, of the same shape.

    Args:
      index_N: numbers of 0 .. count - 1.
      epoch_N: the epoch of each, 0 or more; every epoch has a permutation of its own.
    """
    high, low = _halves(count)
    with np.errstate(over="ignore"):  # sums and products are meant modulo 2**64
        key_N = _mixed(_mixed(np.uint64(seed)) + epoch_N.astype(np.uint64) * _GOLDEN)
        moved_N = _feistel(index_N.astype(np.uint64), key_N, high, low)
        while (outside_N := moved_N >= np.uint64(count)).any():
            moved_N[outside_N] = _feistel(moved_N[outside_N], key_N[outside_N], high, low)
    return moved_N.astype(np.int64)


def _halves(count: int) -> tuple[np.uint64, np.uint64]:
    """The bits of the two halves of a number below `count`."""
    bits = max(count - 1, 1).bit_length()
    return np.uint64(bits - bits // 2), np.uint64(bits // 2)


def _feistel(number_N: np.ndarray, key_N: np.ndarray, high: np.uint64, low: np.uint64):
    """A permutation of the numbers of high + low bits: each half changes by what the other says."""
    one = np.uint64(1)
    mask_high, mask_low = (one << high) - one, (one << low) - one
    high_N, low_N = number_N >> low, number_N & mask_low
    for n in range(ROUNDS):
        round_N = key_N + np.uint64(n + 1) * _GOLDEN
        if n % 2:
            low_N = low_N ^ (_mixed(high_N + round_N) & mask_low)
        else:
            high_N = high_N ^ (_mixed(low_N + round_N) & mask_high)
    return (high_N << low) | low_N


def _mixed(x: Any) -> Any:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014): bits that look random."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

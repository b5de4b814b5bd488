"""Reversing by reflections that cancel: what a model that does so would answer.

A reflection undoes itself. If each token reflects a query along a direction of its symbol, as in
PaTH (Yang et al. 2025, arXiv 2505.16381) with beta = 2, then in "a b c SEP c b" the reflections
between the last token and "a" cancel in pairs, and "a" is met by a query that is as it was. So one
head pops a stack without counting, whatever n-grams repeat. But where a symbol stands twice in a
row its two reflections cancel as well, so that several places of the question are met alike.

After a prefix of the question, what is left of the reflections is the prefix without its pairs: a
node of a tree. Places whose prefixes leave the same node are met alike; the rule answers with the
symbol that most of them have, the newest of several.
"""

from collections import Counter
from typing import Literal

import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.task import BOS, EOS, PAD, SEP, Batch

Follows = Literal["string", "cancellation"]


def guesses(tokens_BT: np.ndarray) -> np.ndarray:
    """The token that the rule predicts after each token from SEP on, [B, T]; PAD before.

    The end of the answer is what stands at the empty prefix.
    """
    guess_BT = np.full_like(tokens_BT, PAD)
    for tokens_T, guess_T in zip(tokens_BT.tolist(), guess_BT, strict=True):
        if SEP not in tokens_T:
            continue
        separator = tokens_T.index(SEP)
        begin = tokens_T.index(BOS) + 1
        node: tuple[int, ...] = ()
        met: dict[tuple[int, ...], list[int]] = {node: [EOS]}
        for token in tokens_T[begin:separator]:
            node = _after(node, token)
            met.setdefault(node, []).append(token)
        for place in range(separator, len(tokens_T)):
            if place > separator:
                if tokens_T[place] in (EOS, PAD):
                    break
                node = _after(node, tokens_T[place])
            guess_T[place] = _most(met.get(node, [PAD]))
    return guess_BT


def accuracy(batch: Batch) -> float:
    """The share of the answers of a batch that the rule has right."""
    counts_BT = np.asarray(batch.weights_BT) > 0
    right_BT = guesses(np.asarray(batch.tokens_BT)) == np.asarray(batch.targets_BT)
    return float(right_BT[counts_BT].mean())


def in_dispute(batch: Batch) -> dict[Follows, Batch]:
    """The examples with the answers to score where the rule and the string differ: as the string
    has them, and as the rule has them. Nothing if they differ nowhere.
    """
    targets_BT, guess_BT = np.asarray(batch.targets_BT), guesses(np.asarray(batch.tokens_BT))
    differ_BT = (np.asarray(batch.weights_BT) > 0) & (guess_BT != targets_BT) & (guess_BT != PAD)
    if not differ_BT.any():
        return {}
    string = batch._replace(weights_BT=jnp.asarray(differ_BT, jnp.float32))
    return {"string": string, "cancellation": string._replace(targets_BT=jnp.asarray(guess_BT))}


def _after(node: tuple[int, ...], token: int) -> tuple[int, ...]:
    """What is left of the reflections after one more."""
    return node[:-1] if node and node[-1] == token else (*node, token)


def _most(tokens: list[int]) -> int:
    """The most frequent token, the newest of several."""
    counts = Counter(tokens)
    return max(reversed(tokens), key=counts.__getitem__)

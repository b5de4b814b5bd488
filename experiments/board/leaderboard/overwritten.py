"""Examples of copying of whose answers the last symbols before a place are overwritten.

They are overwritten by those before another place. A model that counts still gives the symbol of
its own place ("position"); one that looks up what followed these symbols gives that of the other
place ("n-gram"). After Jelassi et al. 2024 (arXiv 2402.01032), who overwrite n-grams of the string.
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.tasks.task import EOS, Batch

Follows = Literal["position", "n-gram"]
LABEL = "follows"  # of a record, what the answer would follow
TRIES = 100  # to draw two places whose symbols differ; strings of one symbol have none


def overwritten(batch: Batch, symbols: int) -> dict[Follows, Batch]:
    """The examples with so many symbols of each answer overwritten, with one target each: the
    symbol of the place that comes after them, and that of the place whose symbols they are.

    Places are the same for all models. An example without two places that differ has no target.
    """
    tokens_BT, weights_BT = np.array(batch.tokens_BT), np.zeros(batch.weights_BT.shape, np.float32)
    targets_BT = np.asarray(batch.targets_BT)
    other_BT = np.array(targets_BT)
    counts_BT = (np.asarray(batch.weights_BT) > 0) & (targets_BT != EOS)
    random = np.random.default_rng(0)
    for row, counts_T in enumerate(counts_BT):
        if (pair := _places(random, targets_BT[row], np.flatnonzero(counts_T)[symbols:])) is None:
            continue
        place, other = pair
        before = lambda column: slice(column - symbols + 1, column + 1)
        tokens_BT[row, before(place)] = batch.tokens_BT[row, before(other)]
        other_BT[row, place] = targets_BT[row, other]
        weights_BT[row, place] = 1.0
    changed = batch._replace(tokens_BT=jnp.asarray(tokens_BT), weights_BT=jnp.asarray(weights_BT))
    return {"position": changed, "n-gram": changed._replace(targets_BT=jnp.asarray(other_BT))}


def _places(
    random: np.random.Generator, target_T: np.ndarray, columns: np.ndarray
) -> tuple[int, int] | None:
    """Two of the columns whose targets differ, in either order."""
    for _ in range(TRIES if len(columns) > 1 else 0):
        place, other = random.choice(columns, 2, replace=False)
        if target_T[place] != target_T[other]:
            return int(place), int(other)
    return None

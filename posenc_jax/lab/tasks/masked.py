"""Masked language modelling: some tokens are hidden, and only these are predicted.

As in Devlin et al. (2018, arXiv 1810.04805), but every hidden token becomes the mask token, number
256 for bytes. The target of a hidden token is at its own place, so the model must be an encoder.
"""

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.task import Batch, Task, draw, example_keys, index_keys
from posenc_jax.options import FieldError

STEPS = 2**16  # a share is rounded to a multiple of 1 / STEPS


def check_share(share: float) -> None:
    """Raises a FieldError if a share is outside [0, 1), or so small that no token is hidden."""
    if not 0 <= share < 1:
        raise FieldError("task.masked", f"{share} must be at least 0 and below 1")
    if 0 < share < 1 / STEPS:
        raise FieldError("task.masked", f"{share} hides nothing; 0, or {1 / STEPS:.3g} or more")


def masked(task: Task, share: float) -> Task:
    """Returns the task with each token hidden with probability `share`; a row may have no hidden
    token.

    The choice depends only on the training key, or the number of the test example, and on the place
    in the row, so an example is the same in any width.
    """

    def hide(batch: Batch, key_B: jax.Array) -> Batch:
        place_T = jnp.arange(batch.tokens_BT.shape[1], dtype=jnp.int32)
        random_BT = jax.vmap(draw, (0, None, None))(key_B, place_T, STEPS)
        hidden_BT = (random_BT < round(share * STEPS)) & (batch.weights_BT > 0)
        return batch._replace(
            tokens_BT=jnp.where(hidden_BT, task.vocab, batch.tokens_BT),
            targets_BT=batch.tokens_BT,
            weights_BT=hidden_BT.astype(jnp.float32),
        )

    def sample(data, key, size_B, width):
        # The windows are drawn with `key`, the masks with another key.
        return hide(
            task.sample(data, key, size_B, width),
            index_keys(jax.random.fold_in(key, 1), jnp.arange(len(size_B), dtype=jnp.int32)),
        )

    def numbered(data, index_B, size_B, width, split):
        key_B = example_keys("masked", split, index_B, size_B)
        return hide(task.numbered(data, index_B, size_B, width, split), key_B)

    return task._replace(vocab=task.vocab + 1, sample=sample, numbered=numbered)

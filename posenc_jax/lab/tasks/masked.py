"""A text task in its masked form: some bytes are hidden, and those alone are to be said.

As in the masked language models of Devlin et al. (2018, arXiv 1810.04805), with one kind of mask:
every hidden byte reads as a token of its own, number 256 for bytes. It asks for an encoder; the
model says each hidden byte at its own place.
"""

import zlib

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.task import Batch, Task, draw

STEPS = 2**16  # a share is counted in so many parts


def check_share(share: float) -> None:
    """ValueError: a share of bytes outside [0, 1), or so small that none is hidden."""
    if not 0 <= share < 1:
        raise ValueError(f"task.masked: {share} must be at least 0 and below 1")
    if 0 < share < 1 / STEPS:
        raise ValueError(f"task.masked: {share} hides nothing; 0, or {1 / STEPS:.3g} or more")


def masked(task: Task, share: float) -> Task:
    """The task with each token hidden by a chance of `share`; a row may have none to say.

    Which are hidden is a function of the training key, or of the test example's number, and of the
    place in the row alone, so an example is the same in any width.
    """
    check_share(share)

    def hide(batch: Batch, key_B: jax.Array) -> Batch:
        place_T = jnp.arange(batch.tokens_BT.shape[1], dtype=jnp.int32)
        lot_BT = jax.vmap(draw, (0, None, None))(key_B, place_T, STEPS)
        hidden_BT = (lot_BT < round(share * STEPS)) & (batch.weights_BT > 0)
        return batch._replace(
            tokens_BT=jnp.where(hidden_BT, task.vocab, batch.tokens_BT),
            targets_BT=batch.tokens_BT,
            weights_BT=hidden_BT.astype(jnp.float32),
        )

    def sample(data, key, size_B, width):
        # The stream of windows reads the key itself; the masks are another.
        return hide(
            task.sample(data, key, size_B, width),
            _numbered(jax.random.fold_in(key, 1), jnp.arange(len(size_B), dtype=jnp.int32)),
        )

    def fixed(stream, rows):
        def numbered(data, index_B, size, width):
            key = jax.random.key(zlib.crc32(b"masked"), impl="threefry2x32")
            key = jax.random.fold_in(jax.random.fold_in(key, stream), size)
            return hide(rows(data, index_B, size, width), _numbered(key, index_B))

        return numbered

    return task._replace(
        vocab=task.vocab + 1,
        sample=sample,
        test=fixed(1, task.test),
        valid=fixed(2, task.valid),
    )


def _numbered(key: jax.Array, index_B: jax.Array) -> jax.Array:
    return jax.vmap(jax.random.fold_in, (None, 0))(key, index_B)

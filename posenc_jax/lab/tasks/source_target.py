"""Questions and answers as pairs of sequences, for an encoder-decoder."""

import jax.numpy as jnp

from posenc_jax.lab.tasks.task import Batch, Pair, Task
from posenc_jax.layout import layout


def paired(task: Task) -> Task:
    """Returns the task for an encoder-decoder: the question is the source, the answer the target.

    The target begins with the last token before the answer, SEP. Both sides keep their columns; the
    columns of the other side are padding, and positions count from 0 on either side. Targets and
    weights do not change.
    """

    def split(batch: Batch) -> Batch:
        at = batch.layout
        answered_BT = jnp.cumsum(batch.weights_BT, axis=1) > 0
        side = lambda inside_BT: layout(
            jnp.where(inside_BT, at.segment_BT, 0), group_BT=at.group_BT
        )
        tokens = Pair(batch.tokens_BT, batch.tokens_BT)
        return batch._replace(tokens_BT=tokens, layout=Pair(side(~answered_BT), side(answered_BT)))

    return task._replace(
        sample=lambda *args: split(task.sample(*args)),
        numbered=lambda *args: split(task.numbered(*args)),
    )

"""One rotary model read under several rotations at once: their tables are data, not programs."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.lab import EXAMPLES, Lab, Trained
from posenc_jax import make
from posenc_jax.encoding import Dims, Encoding, place
from posenc_jax.lab.config.schema import EvalConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training.evaluation import Evaluator, Scores
from posenc_jax.layout import Layout, full


def table_of(encoding: Encoding, where: Layout | jax.Array, head: int) -> Any:
    """What a rotary encoding without parameters turns by, at a layout or at positions [B, T]."""
    assert encoding.table is not None
    placed = place(encoding, None, where) if isinstance(where, Layout) else where
    return encoding.table({}, placed, Dims(head, 1, head))


def bits_under(
    lab: Lab, trained: Trained, length: int, ways: Mapping[str, Encoding]
) -> dict[str, np.ndarray]:
    """Bits a target at one length, [S], with each of several rotary encodings in place of the
    trained one. All are like rope: no parameters, and pairs of the same kind.
    """
    head = trained.config.width // trained.config.heads
    tables = [table_of(way, full(1, length), head) for way in ways.values()]
    both = [{"q": t, "k": t} if not isinstance(t, dict) else t for t in tables]

    def table(params, pos_BT, dims):
        return jax.tree.map(lambda leaf_THF: leaf_THF[pos_BT], params)

    kept = jax.tree.map(lambda leaf_1THF: leaf_1THF[0], both[0])
    reader = Encoding(init=lambda key, dims: kept, table=table, rotate=make("xpos").rotate)
    model = transformer.build(trained.config, reader, trained.task.vocab)
    seeds = len(jax.tree.leaves(trained.params)[0])
    rows = [
        {**trained.params, "encoding": jax.tree.map(lambda leaf: _repeat(leaf[0], seeds), t)}
        for t in both
    ]
    scores = scores_of(lab, trained._replace(model=model), rows, length)
    found = scores.loss_SE.sum(axis=1) / scores.count_SE.sum(axis=1) / math.log(2)
    return dict(zip(ways, found.reshape(len(ways), seeds), strict=True))


def scores_of(lab: Lab, trained: Trained, params: list, length: int) -> Scores:
    """Scores of several sets of parameters in one program; those of the first set's seeds first."""
    stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *params)
    config = EvalConfig(lengths=(length,), examples=EXAMPLES)
    return Evaluator(trained.model, trained.task, config)(stacked, length)


def _repeat(leaf: jax.Array, times: int) -> jax.Array:
    return jnp.broadcast_to(leaf, (times, *leaf.shape))

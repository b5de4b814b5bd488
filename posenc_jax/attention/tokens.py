"""The tokens of one side of attention, and which of the other side they see."""

from typing import NamedTuple

import jax

from posenc_jax.encoding import Placed


class Tokens(NamedTuple):
    """One side, queries or keys: the positions that the encoding reads, the order, the sequence.

    token_BT: number of the token, the same for a query and a key that are one token: its column. In
        a frame that is given keys it is the index.
    """

    placed: Placed
    index_BT: jax.Array
    segment_BT: jax.Array
    token_BT: jax.Array

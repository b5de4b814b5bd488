"""The arguments with which `jax.nn.dot_product_attention` attends with an encoding."""

import jax

from posenc_jax.attention import Layer
from posenc_jax.attention.layers import check_layer, check_side
from posenc_jax.attention.score_options import ScoreOptions, both, check_options, plus
from posenc_jax.attention.softmax import for_every_head


def arguments(
    q_BQHC: jax.Array,
    k_BKGC: jax.Array,
    v_BKGC: jax.Array,
    layer: Layer,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None, jax.Array]:
    """(q, k, v, bias, mask) for `jax.nn.dot_product_attention`, arguments as of `attend`.

    q and k are rotated; where heads are turned differently, k and v have all heads. The bias is
    [B|1, H|1, Q, K], or None, the mask bool [B|1, H|1, Q, K]. A bias and a mask that you would give
    to that function come in here, where they join those of the layer. A query that sees no key,
    such as one of padding, gets the mean of all values from that function, where `attend` gives 0.

    ValueError: shapes that are not the frame's, a mask that is not bool, or a method that needs
    `attend`: one that reads content block by block, turns values, or adds channels to queries and
    keys. TypeError: a frame in place of its layer.

    Example:
      out = jax.nn.dot_product_attention(*arguments(q, k, v, frame.layer(n, x)))
    """
    check_layer(layer)
    check_side(layer, "v", v_BKGC)
    if layer.encoding.turns_values:
        raise ValueError("layer: this method turns values too; use attend(q, k, v, layer)")
    width = q_BQHC.shape[-1]
    check_options(ScoreOptions(mask_BHQK=mask, bias_BHQK=bias), layer, q_BQHC.shape[0])
    if mask is not None:
        layer = layer.counting(mask)
    q_BQHC, k_BKGC = layer.rotate(q_BQHC, k_BKGC)
    if q_BQHC.shape[-1] != width:
        raise ValueError("layer: this method adds channels; use attend(q, k, v, layer)")
    if layer.encoding.bias is not None:
        bias = plus(layer.bias(), bias)
    if k_BKGC.shape[2] > v_BKGC.shape[2]:
        v_BKGC = for_every_head(v_BKGC, k_BKGC.shape[2])
    return q_BQHC, k_BKGC, v_BKGC, bias, both(layer.visible(), mask)

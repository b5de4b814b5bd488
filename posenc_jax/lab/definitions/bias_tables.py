"""Definitions of the methods in `posenc_jax.encodings.bias_tables`."""

import math

import numpy as np

from posenc_jax.lab.definitions.shared import by_offset, clipped_row


def _t5_bias(o, params, d, h, heads):
    side = o.buckets // 2 if o.bidirectional else o.buckets
    exact, first = side // 2, side if o.bidirectional and d < 0 else 0
    bucket = math.floor(abs(d) if o.bidirectional else max(d, 0))
    if bucket >= exact:
        share = math.log(bucket / exact) / math.log(o.distance / exact)
        bucket = min(exact + int(share * (side - exact)), side - 1)
    return params["table"][first + bucket, h]


def _t5_scores(o, params, q_THC, *others):
    factor = 1 if o.scaled else np.sqrt(q_THC.shape[-1])
    return by_offset(_t5_bias)(o, params, factor * q_THC, *others)


def _swin_2d_bias(o, params, d, h, heads):
    last = o.window - 1
    if o.beyond == "error" and max(abs(d[0]), abs(d[1])) > last:
        return np.nan
    row, column = (clipped_row(x, last) for x in d)
    return params["table"][row, column, h]


SCORES = {
    "clipped": by_offset(
        lambda o, params, d, h, heads: params["table"][clipped_row(d, o.distance, o.ahead), h]
    ),
    "t5": _t5_scores,
    "swin_2d": by_offset(_swin_2d_bias),
}

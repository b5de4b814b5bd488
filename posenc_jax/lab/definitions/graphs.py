"""Definitions of the methods in `posenc_jax.encodings.graphs`."""

from posenc_jax.lab.definitions.shared import embeds_by

EMBEDS = {
    "random_walk": embeds_by(lambda o, params, pos_TA, n, width: pos_TA[:, : o.steps]),
    "laplacian": embeds_by(lambda o, params, pos_TA, n, width: pos_TA[:, : o.vectors]),
}

"""What each method computes, in float64 NumPy: the formulas of the papers, written a second time.

The tests hold the library to these definitions. Nothing here calls the code that they check: the
methods of `posenc_jax/encodings/NAME.py` are defined again in NAME.py of this package, loops and
all. `o` has the method's options as attributes, n is the number of tokens in the sequence, and
`params` are those of one layer. A method is in one of the first three tables, by its name:

SCORES:  the logits, (o, params, q_THC, k_THC, pos_T, n) -> [H, T, T], 1/sqrt(C) included, without
         the mask; logarithms of weights if its walk weighs. For a method that reads the attention's
         input, that input is q with its heads side by side. o.layer is the layer.
EMBEDS:  the embeddings with positions, (o, params, x_TD, pos_T, n) -> x_TD.
PLACES:  the positions placed in evaluation, (o, pos_T, n) -> positions. A method that reads groups
         gets group_T in place of pos_T.
OUTPUTS: for a method that turns values, also the output: (o, params, weight_HQK, v_KHC, pos_T, n)
         -> o_QHC.
"""

from collections.abc import Callable

from posenc_jax.lab.definitions import (
    absolute,
    bias_formulas,
    bias_networks,
    bias_tables,
    by_layer,
    extension,
    gated,
    grape,
    graphs,
    grids,
    offset_vectors,
    path,
    position_vectors,
    positions,
    positions_augmented,
    rotary,
    rotary_axes,
    rotary_by_content,
    rotary_by_distance,
    rotary_fourier_polar,
    rotary_generators,
    rotary_scaling,
    rotary_vision,
)

EMBEDS: dict[str, Callable] = absolute.EMBEDS | graphs.EMBEDS | grids.EMBEDS
PLACES: dict[str, Callable] = positions.PLACES | positions_augmented.PLACES
OUTPUTS: dict[str, Callable] = rotary_vision.OUTPUTS
SCORES: dict[str, Callable] = {
    **absolute.SCORES,
    **bias_formulas.SCORES,
    **bias_networks.SCORES,
    **bias_tables.SCORES,
    **by_layer.SCORES,
    **extension.SCORES,
    **gated.SCORES,
    **grape.SCORES,
    **offset_vectors.SCORES,
    **path.SCORES,
    **position_vectors.SCORES,
    **rotary.SCORES,
    **rotary_axes.SCORES,
    **rotary_by_content.SCORES,
    **rotary_by_distance.SCORES,
    **rotary_fourier_polar.SCORES,
    **rotary_generators.SCORES,
    **rotary_scaling.SCORES,
    **rotary_vision.SCORES,
}

"""Encodings that only released models have, which are no methods of the catalogue, under its
properties; their values are compared with transformers in `test_huggingface_types`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, Encoding, chain, frame, logits, make, testing
from posenc_jax.huggingface import offset_readers as offsets
from posenc_jax.huggingface import own_readers as own
from posenc_jax.huggingface import picture_readers as pictures
from posenc_jax.huggingface import point_readers as points
from posenc_jax.huggingface import rotary_parts as rotary
from posenc_jax.huggingface import sound_readers as sound
from posenc_jax.huggingface import tile_readers as tiles
from posenc_jax.huggingface.series_readers import standardized_sines
from posenc_jax.layout import layout
from posenc_jax.options import FieldError


def gated_logits(params, q_THC, k_THC, pos_T):
    """WavLM's, of queries that are the channels of x: buckets 0, 1, 2 to 3, and from 4 on."""
    offset_TT = pos_T[:, None] - pos_T[None]
    bucket_TT = np.digitize(np.abs(offset_TT), [1, 2, 2 * 3**0.5]) + 4 * (offset_TT < 0)
    gate_TH2 = 1 / (1 + np.exp(-(q_THC @ params["gate"] + params["gate_bias"])))
    gate_TH = gate_TH2[..., 0] * (gate_TH2[..., 1] * params["scale"] - 1) + 2
    bias_HTT = np.moveaxis(params["table"][bucket_TT], -1, 0)
    products_HTT = np.einsum("qhc,khc->hqk", q_THC, k_THC) * q_THC.shape[-1] ** -0.5
    return products_HTT + gate_TH.T[:, :, None] * bias_HTT


NEAR = 20  # a position that tables have, in place of a far one
RELATIVE: dict[str, Any] = {"shift_invariant": True}
PATCHES: dict[str, Any] = {"axes": 2}
FRAMES: dict[str, Any] = {"axes": 3}
ROPE, AXIAL = make("rope"), make("axial")
NEIGHBOURS = make("rope", pairing="interleaved")
CASES: list[tuple[Encoding, dict[str, Any]]] = [
    (points.over_heads(make("nd_rope", order="alternate")), RELATIVE | PATCHES),
    (points.by_directions(), RELATIVE | PATCHES),
    (offsets.class_offsets(64, 64), PATCHES | {"far": NEAR}),
    (offsets.moved_grid(9, 7, 64, 64, 0.1, "bicubic"), PATCHES | {"far": NEAR}),
    (offsets.absolute_offsets(64), RELATIVE | PATCHES | {"far": NEAR}),
    (tiles.gated_tiles(64, 64, 64), FRAMES | {"far": NEAR}),
    (tiles.gated_tile(64, 64), FRAMES | {"far": NEAR}),
    (standardized_sines(64), {"far": NEAR}),
    (own.product_table((8, 8), (12, 20)), {"far": NEAR}),
    (own.from_row(make("learned", length=64), 2), {"far": NEAR}),
    (own.over_root_width(make("sinusoidal")), {}),
    (own.inside_scale(make("alibi")), RELATIVE),
    (sound.gated_buckets(8, 6), RELATIVE | {"definition": gated_logits}),
    (sound.by_learned_factor(make("sinusoidal")), {}),
    (own.clipped_curves(3, 6, 2.0, 3, 1.0), {"far": NEAR}),
    (chain(own.unscaled(), ROPE), RELATIVE),
    (pictures.on_axes(AXIAL, (1, 0)), RELATIVE | PATCHES),
    (pictures.still_prefix(AXIAL, 1), PATCHES),
    (pictures.learned_prefix(AXIAL), PATCHES),
    (pictures.of_patches(make("sinusoidal_2d")), PATCHES),
    (
        pictures.with_first_row(make("learned_grid", rows=64, columns=64, prefix=1)),
        PATCHES | {"far": NEAR},
    ),
    (rotary.paired_across(make("nd_rope", sections=(1, 1), pairing="half")), RELATIVE | PATCHES),
    (rotary.paired_by_axis(AXIAL), RELATIVE | PATCHES),
    (rotary.on_channels(ROPE, 0.5), RELATIVE),
    (rotary.on_channels(NEIGHBOURS, 4, last=True), RELATIVE),
    (rotary.by_sections(make("pi", factor=2.0), (2, 1, 1), "sections"), RELATIVE | FRAMES),
    (rotary.backwards(ROPE), RELATIVE),
    (rotary.with_factors(ROPE), RELATIVE),
    (rotary.values_too(ROPE), {}),
    (rotary.on_first_head(make("mhrope", heads=(1, 0, 0))), RELATIVE),
    (rotary.mrope_by_channel((2, 1, 1), 1e4), FRAMES),
    (rotary.rope_3d_by_channel(1e4), FRAMES),
    (rotary.louder_by_length(make("longrope", length=8), 1.1, 1.4, 8), {}),
    (chain(ROPE, rotary.sharper_past(8)), {}),
    (chain(ROPE, rotary.louder_by_count()), {}),
]


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(
    ("encoding", "claims"), CASES, ids=[encoding.name for encoding, _ in CASES]
)
def test_encodings_of_models_have_the_properties_of_the_catalogue(encoding, claims):
    testing.check(encoding, **claims)


def test_claims_that_do_not_hold_are_seen():
    """Controls: HunYuan-VL's is no rotation; neighbours alone stay in a head."""
    by_channel = rotary.mrope_by_channel((2, 1, 1), 1e4)
    with pytest.raises(AssertionError, match="shift"):
        testing.shift(testing.trial(by_channel, axes=3, shift_invariant=True))
    with pytest.raises(FieldError, match=r"encoding.pairing: 'half' is not 'interleaved'"):
        points.over_heads(make("nd_rope", order="alternate", pairing="half"))


def test_wavlms_layers_share_a_table_and_have_gates_of_their_own():
    encoding, dims = sound.gated_buckets(8, 6), Dims(16, 2, 8, layers=3)
    params = encoding.init(jax.random.key(0), dims)
    assert params["table"].shape == (8, 2)
    assert [gate["gate"].shape for gate in params["gates"]] == [(8, 2)] * 3
    assert len({float(gate["gate"].sum()) for gate in params["gates"]}) == 3
    with pytest.raises(FieldError, match="model: 20 channels are not those of 2 heads of 8"):
        encoding.init(jax.random.key(0), Dims(20, 2, 8))


@pytest.mark.parametrize(
    ("encoding", "inside", "outside"),
    [
        (offsets.absolute_offsets(4), [(3, 3), (0, 0)], [(0, 4), (4, 0), (0.5, 0)]),
        (offsets.class_offsets(2, 3), [(1, 2), (-1, 0), (0, 0)], [(0, 3), (2, 0), (0, 0.5)]),
    ],
    ids=["levit", "beit"],
)
def test_offsets_past_a_table_give_nan(encoding, inside, outside):
    """From the patch at (0, 0), and from the class token where there is one."""
    dims = Dims(16, 2, 8)
    params = encoding.init(jax.random.key(0), dims)
    pos_BT2 = jnp.asarray([[(0, 0), *inside, *outside]], float)
    view = frame(
        encoding, params, layout(np.ones(pos_BT2.shape[:2], int), pos_BT2), dims, causal=False
    )
    zeros_BTHC = jnp.zeros((*pos_BT2.shape[:2], 2, 8))
    logits_BHQK = np.asarray(logits(zeros_BTHC, zeros_BTHC, view.layer(0)))
    held_K = np.isfinite(logits_BHQK[0, 0, 0])
    assert held_K.tolist() == [True] * (1 + len(inside)) + [False] * len(outside)

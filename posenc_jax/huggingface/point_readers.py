"""Models whose queries and keys turn by rows and columns in ways of their own: by type of layer,
over the channels of all heads, through a learned map of points, by coordinates of atoms.
"""

import dataclasses

import jax

from posenc_jax.combinators import by_order, chain, per_layer
from posenc_jax.encoding import Dims, Encoding
from posenc_jax.encodings import make, rotation
from posenc_jax.encodings.rotary_axes import turns_2d
from posenc_jax.encodings.rotation import Turn
from posenc_jax.heads import by_head, tell_heads
from posenc_jax.huggingface.fields import POSITIONAL, Fields
from posenc_jax.huggingface.rope_fields import FULL, LOCAL, rope_dictionary, unscaled_base
from posenc_jax.huggingface.rotary_parts import on_channels, paired_across
from posenc_jax.huggingface.rows import Reader
from posenc_jax.options import FieldError, choices_for, shown
from posenc_jax.recipes import recorded

SHARE = "partial_rotary_factor"


@recorded
def over_heads(encoding: Encoding) -> Encoding:
    """The rotary encoding of neighbours with its pairs along the channels of all heads, as of one
    wide head.

    FieldError: it pairs other channels than neighbours, which may be of two heads.
    """
    if (pairing := encoding.options.get("pairing")) != "interleaved":
        raise FieldError(("encoding", "pairing"), f"{pairing!r} is not 'interleaved'")
    plain = encoding.table
    assert plain is not None

    def table(params, placed, dims):
        def of_heads(dims):
            wide = dataclasses.replace(dims, heads=1, head=dims.heads * dims.head)
            leaves = plain(params, placed, wide)
            return Turn(*(leaf.reshape(*leaf.shape[:2], dims.heads, -1) for leaf in leaves))

        return by_head(of_heads, params, dims, axis=2)

    return rotation.rotary("interleaved", table, of_heads=tell_heads, place=encoding.place)


@recorded
def by_directions() -> Encoding:
    """LightGlue's rotation by real (row, column): a pair turns by f row + g column, with learned f
    and g that heads and layers share, freq_2F (Lindenberger et al. 2023, arXiv 2306.13643).
    """

    def init(key: jax.Array, dims: Dims):
        return {"freq_2F": jax.random.normal(key, (2, len(rotation.ladder(dims.head, 1.0))))}

    table = lambda params, pos_BT2, dims: turns_2d(pos_BT2, params["freq_2F"][:, None])
    return rotation.rotary("interleaved", table, init=init)


def _neomme(config: Fields) -> Encoding:
    """NeoMME's rotation of (row, column), whose pairs turn by the row and by the column in turn, on
    a part of a head by type of layer; every second layer with a window has a wide one. A token of
    text has its number twice.
    """
    count = config.get("num_hidden_layers", default=17)
    full = lambda n: (n + 1) % 6 == 0 or n == count - 1
    types = config.get("layer_types") or [FULL if full(n) else LOCAL for n in range(count)]
    name, _ = rope_dictionary(config)
    rope_by_type, by_layer = config.inside(name), config.inside("per_layer_config")
    window = config.get("sliding_window", default=256)
    bases, shares = {FULL: 1_000_000.0, LOCAL: 10_000.0}, {FULL: 0.25, LOCAL: 1.0}
    windowed = 0

    def turned(layer_type: str) -> Encoding:
        rope = rope_by_type.inside(layer_type)
        rope.check("rope_type", "default")
        base = rope.get("rope_theta", default=config.get("rope_theta", default=bases[layer_type]))
        share = rope.get(SHARE, default=shares[layer_type])
        rotated = make("nd_rope", bases=(base,), order="alternate", ladders="head", pairing="half")
        return rotated if share == 1 else on_channels(rotated, share)

    layers = []
    for n, layer_type in enumerate(types):
        if layer_type not in bases:
            reason = f"{shown(layer_type)}{choices_for(layer_type, tuple(bases))}"
            raise FieldError((*config.path, "layer_types", n), reason)
        if layer_type == FULL:
            layers.append(turned(FULL))
            continue
        wide = 1024 if windowed % 2 and not by_layer.fields else window
        windowed += 1
        distance = by_layer.inside(f"{n:02}").get("sliding_window", default=wide)
        layers.append(chain(turned(LOCAL), by_order(make("window", distance=distance))))
    return per_layer(layers)


def _efficient_loftr(config: Fields) -> Encoding:
    """EfficientLoFTR's rotation of neighbours by the row and by the column in turn."""
    base = unscaled_base(config, 10_000.0, "default", reads=(SHARE,))
    rope = config.inside(rope_dictionary(config)[0])
    heads = config.get("num_attention_heads", default=8)
    for fields in (config, rope):  # here a number of heads, whose channels an axis has
        share = fields.fields.get(SHARE, heads / 2)
        fields.read.add(SHARE)
        if share != heads / 2:
            raise FieldError((*fields.path, SHARE), f"{shown(share)} is not half of {heads} heads")
    return over_heads(make("nd_rope", bases=(base,), order="alternate", pairing="interleaved"))


def _atoms(config: Fields) -> Encoding:
    """ESMFold2's rotation of atoms by (x, y, z, number of the residue), within a window of atoms
    in their order; the fields are those of the whole model.
    """
    atoms = config.inside("atom_encoder")
    spatial = atoms.get("num_spatial_rope_pairs_per_axis", default=2)
    sections = (*[spatial] * 3, atoms.get("num_uid_rope_pairs", default=10))
    base = atoms.get("spatial_rope_base_frequency", default=20.0)
    bases = (*[base] * 3, atoms.get("uid_rope_base_frequency", default=10_000.0))
    atoms.refuse_unread(POSITIONAL)
    window = config.get("sliding_window", default=128) // 2
    turned = paired_across(make("nd_rope", sections=sections, bases=bases, pairing="half"))
    return chain(turned, by_order(make("window", distance=window)))


ATOMS = Reader(_atoms)
NEOMME, EFFICIENT_LOFTR = Reader(_neomme), Reader(_efficient_loftr)
LIGHTGLUE = Reader(lambda config: by_directions())

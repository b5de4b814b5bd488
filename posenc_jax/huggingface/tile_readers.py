"""Llama 3.2's tower of pictures that are cut into tiles.

Positions are (shape, tile, patch): the number of the picture's shape among those that the config
lists, from 1, the number of its tile, and 0 for the class token of a tile or the patch's number
from 1.
"""

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings.card import with_axes
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.rows import Reader
from posenc_jax.recipes import recorded


def _refused(code_BTW: jax.Array, pos_BT3: jax.Array, lengths: tuple[int, ...]) -> jax.Array:
    """The code, NaN where one of the three numbers is not below its length."""
    for axis, length in enumerate(lengths):
        code_BTW = codes.refused(code_BTW, pos_BT3[..., axis], length)
    return code_BTW


@recorded
def gated_tiles(shapes: int, tiles: int, patches: int) -> Encoding:
    """A vector of each patch and one of each patch of a tile, weighed by 1 - tanh g and tanh g, and
    of patches one of their tile, times tanh of another learned number (Llama 3.2 Vision).

    shapes: of pictures, that of padding, 0, included. patches: of a tile, with its class token.
    """

    def init(key, width):
        keys = jax.random.split(key, 3)
        draw = lambda n, *sizes: width**-0.5 * jax.random.normal(keys[n], (*sizes, width))
        return {
            "table": draw(0, patches),
            "by_tile": draw(1, shapes, tiles, patches),
            "tile": draw(2, shapes, tiles),
            "gate": jnp.zeros(1),
            "tile_gate": jnp.zeros(1),
        }

    def code(params, pos_BT3, width):
        shape_BT, tile_BT, patch_BT = (pos_BT3[..., axis].astype(jnp.int32) for axis in range(3))
        wide = {name: leaf.astype(float) for name, leaf in params.items()}
        share = jnp.tanh(wide["gate"][0])
        code_BTW = (1 - share) * wide["table"][patch_BT]
        code_BTW = code_BTW + share * wide["by_tile"][shape_BT, tile_BT, patch_BT]
        of_tile_BTW = jnp.tanh(wide["tile_gate"][0]) * wide["tile"][shape_BT, tile_BT]
        code_BTW = code_BTW + jnp.where((patch_BT > 0)[..., None], of_tile_BTW, 0)
        return _refused(code_BTW, pos_BT3, (shapes, tiles, patches))

    return codes.coded("add", None, code, init, axes=3)


@recorded
def gated_tile(shapes: int, tiles: int) -> Encoding:
    """A vector of each tile times tanh of a learned number, at the input of the layers after those
    that `gated_tiles` is for; sizes as there.
    """

    def init(key, width):
        table_SMW = width**-0.5 * jax.random.normal(key, (shapes, tiles, width))
        return {"tile": table_SMW, "tile_gate": jnp.zeros(1)}

    def code(params, pos_BT3, width):
        shape_BT, tile_BT = (pos_BT3[..., axis].astype(jnp.int32) for axis in range(2))
        of_tile_BTW = params["tile"].astype(float)[shape_BT, tile_BT]
        code_BTW = jnp.tanh(params["tile_gate"].astype(float)[0]) * of_tile_BTW
        return _refused(code_BTW, with_axes(pos_BT3, 3), (shapes, tiles))

    return codes.coded("add", None, code, init, axes=3)


def _sizes(config: Fields) -> tuple[int, int]:
    """The number of shapes, with that of padding, and of tiles."""
    tiles = config.get("max_num_tiles", default=4)
    # With four tiles there are eight shapes of up to four tiles in rows and columns.
    listed = config.get("supported_aspect_ratios", default=((1, 1),) * 8)
    return len(listed) + 1, tiles


def _first(config: Fields) -> Encoding:
    """The tables at the input of the first layers."""
    patches = config.side("image_size", 448) // config.side("patch_size", 14)
    return gated_tiles(*_sizes(config), patches**2 + 1)


TILES, LATER_TILES = Reader(_first), Reader(lambda config: gated_tile(*_sizes(config)))

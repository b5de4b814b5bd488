"""Models of time series, whose tokens are patches of a series."""

import jax.numpy as jnp

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings import make
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.rows import Reader
from posenc_jax.recipes import recorded


@recorded
def standardized_sines(length: int) -> Encoding:
    """PatchTST's sines and cosines, less the mean of those of all patches, over ten times their
    standard deviation (Nie et al. 2022, arXiv 2211.14730).

    length: patches of a series. Positions past them give NaN.
    """

    def code(params, pos_BT, width):
        waves = lambda at: codes.sines(at, width, 10_000.0, "interleaved", "paper")
        all_1TW = waves(jnp.arange(length)[None])
        code_BTW = (waves(pos_BT) - all_1TW.mean()) / (10 * all_1TW.std(ddof=1))
        return codes.refused(code_BTW, pos_BT, length)

    return codes.coded("add", None, code)


def _of_series(config: Fields, length: int) -> Encoding:
    """The vectors of the patches of a time series."""
    name = "positional_encoding_type"
    config.check(name, "sincos", "random")
    if config.get(name, default="sincos") == "random":
        return make("learned", length=length)
    return standardized_sines(length)


def _patchtst(config: Fields) -> Encoding:
    """PatchTST's vectors of patches, after one of a class token if there is one."""
    context = config.get("context_length", default=32)
    patch, step = config.get("patch_length", default=1), config.side("patch_stride", 1)
    config.get("positional_dropout")
    patches = (max(context, patch) - patch) // step + 1
    return _of_series(config, patches + config.get("use_cls_token", default=False))


def _patchtsmixer(config: Fields) -> Encoding:
    """PatchTSMixer's vectors of patches, where its layers attend."""
    context = config.get("context_length", default=32)
    patch, step = config.get("patch_length", default=8), config.side("patch_stride", 8)
    patches = (max(context, patch) - patch) // step + 1
    return _of_series(config, config.get("num_patches", default=patches))


def _timesfm(config: Fields) -> Encoding:
    """TimesFM's sines of patches, from a period of 2 pi to `max_timescale` times as long."""
    config.check("min_timescale", 1)
    base = config.get("max_timescale", default=10_000)
    return make("sinusoidal", base=float(base), pairing="half", spacing="tensor2tensor")


PATCHTST, PATCHTSMIXER, TIMESFM = map(Reader, (_patchtst, _patchtsmixer, _timesfm))

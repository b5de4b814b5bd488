"""Links of DeBERTa's vectors of offsets and of their projections; arXiv 2006.03654, versions 2 and
3.
"""

import numpy as np

from posenc_jax.lab.model.pretrained.architectures import Released
from posenc_jax.lab.model.pretrained.links import Link
from posenc_jax.options import FieldError

TABLE, NORM = "deberta.encoder.rel_embeddings.weight", "deberta.encoder.LayerNorm"


def links(released: Released) -> list[Link]:
    """The links of the encoding's parameters, and of the projections of content if offsets share
    them.
    """
    shared = released.architecture.relative == "shared"
    all_links = [
        _normed_table(released.config.eps) if shared else _same_array("encoding/table", TABLE)
    ]
    for n in range(released.config.layers):
        all_links += (_shared_projections if shared else _offset_projections)(released, n)
    return all_links


def _same_array(ours: str, theirs: str) -> Link:
    """A link of one array and one tensor with the same values."""
    keep = lambda array: (array,)
    return Link((ours,), (theirs,), keep, keep)


def _normed_table(eps: float) -> Link:
    """The link of the table of offsets, read through the norm that the model applies to it."""

    def read(table_RD, scale_D, bias_D):
        wide_RD = table_RD.astype(np.float64)
        wide_RD -= wide_RD.mean(axis=-1, keepdims=True)
        wide_RD /= np.sqrt(np.square(wide_RD).mean(axis=-1, keepdims=True) + eps)
        return ((wide_RD * scale_D + bias_D).astype(np.float32),)

    return Link(("encoding/table",), (TABLE, f"{NORM}.weight", f"{NORM}.bias"), read, _unwritten)


def _shared_projections(released: Released, n: int) -> list[Link]:
    """The links of the projections of content, which are those of offsets too."""
    heads = released.config.heads
    ours, theirs = f"block_{n}", f"deberta.encoder.layer.{n}.attention.self"
    kernels = lambda w_FD: (w_FD.T, w_FD.T.reshape(len(w_FD.T), heads, -1))
    biases = lambda b_F: (b_F, b_F.reshape(heads, -1))
    query = f"{ours}/query/kernel", f"encoding/queries/{n}"
    key = f"{ours}/key/kernel", f"encoding/keys/{n}"
    bias = f"{ours}/query/bias", f"encoding/bias/{n}"
    return [
        Link(query, (f"{theirs}.query_proj.weight",), kernels, _unwritten),
        Link(key, (f"{theirs}.key_proj.weight",), kernels, _unwritten),
        Link(bias, (f"{theirs}.query_proj.bias",), biases, _unwritten),
    ]


def _offset_projections(released: Released, n: int) -> list[Link]:
    """The links of projections that offsets alone have. A bias of their keys changes no weight of
    attention.
    """
    heads, theirs = released.config.heads, f"deberta.encoder.layer.{n}.attention.self"
    split = lambda w_FD: w_FD.T.reshape(len(w_FD.T), heads, -1)
    flat = lambda w_DHC: w_DHC.reshape(len(w_DHC), -1).T
    key = tuple(f"{theirs}.pos_key_proj.{leaf}" for leaf in ("weight", "bias"))
    query = tuple(f"{theirs}.pos_query_proj.{leaf}" for leaf in ("weight", "bias"))
    return [
        Link(
            (f"encoding/keys/{n}",), key, lambda w_FD, b_F: (split(w_FD),),
            lambda w_DHC: (flat(w_DHC), np.zeros(w_DHC[0].size, w_DHC.dtype)),
        ),
        Link(
            (f"encoding/queries/{n}", f"encoding/bias/{n}"), query,
            lambda w_FD, b_F: (split(w_FD), b_F.reshape(heads, -1)),
            lambda w_DHC, b_HC: (flat(w_DHC), b_HC.reshape(-1)),
        ),
    ]  # fmt: skip


def _unwritten(*arrays):
    """Raises FieldError: shared projections can be read but not written."""
    raise FieldError("share_att_key", "True can be read, but not written, because training may "
                     "change what is shared; give False, and norm_rel_ebd 'none'")  # fmt: skip

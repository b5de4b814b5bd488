"""What attention needs besides q, k and v: made once for a forward pass, shared by all layers."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import field
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from posenc_jax import encoding as hooks
from posenc_jax.attention import kernels
from posenc_jax.attention.frame_tokens import checked_queries, frame_sides, placed_over
from posenc_jax.attention.layers import STATIC, Layer
from posenc_jax.attention.params import check_shapes, structured_params
from posenc_jax.attention.tokens import Tokens
from posenc_jax.backends.form_choice import kernels_fit
from posenc_jax.encoding import (
    Dims,
    Encoding,
    InPeriod,
    Params,
    Placed,
    at_layer,
)
from posenc_jax.heads import of_heads
from posenc_jax.layout import (
    Layout,
    Order,
    contiguous,
    counting_up,
    order_of,
    rising,
    straight,
    told_apart,
    whole_number,
)
from posenc_jax.meshes import cond, partitioned
from posenc_jax.options import Count, check_array, checked_all, shown

Form = Literal["auto", "dense", "blockwise", "kernel"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Frame:
    """Positions, tables, masks and biases of one forward pass. Made by `frame`; a pytree.

    It fixes the form of attention:

      dense      The logits of all pairs at once. All derivatives; it alone gives positions a
                 gradient through a bias, and takes scores that read other keys (`dape_v2`).
      blockwise  Nothing of size Q x K outlives a block. Reverse-mode derivatives.
      kernel     The same in fused kernels for a TPU or a GPU; on a CPU they are interpreted.
                 First derivatives. It takes bfloat16 and float32, and any bias; on a GPU one of
                 which a head reads up to 256 numbers, and without a bias cuDNN's kernels where they
                 fit. A bias that depends on i - j is a row of offsets where positions count up
                 along storage; others are traced. Of methods that read content it takes those that
                 sum it (`fox`), in causal self-attention. It reads columns as they are stored:
                 where they are moved (`jax.tree.map`) or have holes of padding, a bias by row and
                 such sums are NaN. The other forms put them in order first.
      auto       Dense for short sequences; for long ones the kernel, if it takes the method and
                 programs are for one TPU or GPU, or for each inside of `jax.shard_map`; else
                 blockwise. Our kernel for a TPU has never run on a chip: where nothing is added to
                 the logits, auto takes JAX's splash attention there. On a GPU the kernel is chosen
                 for bfloat16, and not for a bias that takes many operations (`fire`), whose
                 gradient is faster in blocks.

    Example:
      frame = posenc_jax.frame(encoding, params, layout, dims)
      x = frame.embed(x)
      for n in range(dims.layers):
          ...  # q, k, v of x
          out = posenc_jax.attend(q, k, v, frame.layer(n, x))
    """

    params: Params
    alike: Layer  # the layer that all are if they are alike; else without tables, bias and mask
    encoding: Encoding = field(metadata=STATIC)
    embedded: tuple[str, ...] = field(default=(), metadata=STATIC)  # the sides that were
    ended: bool = field(default=False, metadata=STATIC)  # whether the last layer was asked for
    across: bool = field(default=False, metadata=STATIC)  # cross-attention: two inputs

    def embed(self, x_BTD: jax.Array, side: Literal["q", "k"] = "q") -> jax.Array:
        """The embeddings with positions added: [B, Q, D] to the same; x itself if none act there.

        Args:
          x_BTD: embeddings of the queries' tokens, or in cross-attention of the keys' for side "k".
          side: which of the two.

        ValueError: a shape that is not that of the frame.
        """
        tokens = self._checked_input("embed", "x", x_BTD, side)
        self.embedded, self.ended = tuple({*self.embedded, side}), False
        if self.encoding.embed is None:
            return x_BTD
        embed = functools.partial(hooks.embed, self.encoding)
        return partitioned(embed, x_BTD, 3, self.params, x_BTD, tokens.placed)

    def layer(
        self,
        n: int | jax.Array | tuple[int | jax.Array, int],
        x_BQD: jax.Array | None = None,
        k_x_BKD: jax.Array | None = None,
    ) -> Layer:
        """What `attend` needs in layer number n.

        Some methods read a layer's input besides q and k (`fox`, `path`, `repo`,
        `selective_rope`): what they make of x is made here. Other methods do not use x. As in their
        papers it is the x that q and k are projected from: where a layer normalises its input,
        the normalised one.

        Args:
          n: number of the layer, from 0; maybe traced (`lax.scan`) where layers differ in their
            parameters alone. One that the model does not have then gives NaN. Where layers repeat a
            pattern (`local_global`), a pair (n, i): layer n * frame.period + i, of which n may be
            traced; see examples/gemma_scan.py.
          x_BQD: what q is projected from.
          k_x_BKD: what k and v are projected from, if the keys are not the queries' tokens alone.

        ValueError: a layer that the model does not have; inputs whose shapes are not those of the
        frame; `embed` was not called though the encoding acts at the input.
        """
        which = self._in_period(n) if isinstance(n, tuple) else whole_number("frame.layer", n)
        self._check_embedded(which)
        if x_BQD is not None:
            self._checked_input("layer", "x", x_BQD, "q")
        if k_x_BKD is not None:
            self._checked_input("layer", "k_x", k_x_BKD, "k")
        layer, layers = self.alike, self.alike.dims.layers
        if isinstance(which, int) and not 0 <= which < layers:
            raise ValueError(
                f"frame.layer: no layer {which}; dims.layers is {layers}, counted from 0"
            )
        if not isinstance(which, int):
            number = which.number if isinstance(which, InPeriod) else which
            layer = layer.only_if((number >= 0) & (number < layers))
        if self.encoding.at is not None:
            encoding, params, q_placed, k_placed = at_layer(
                self.encoding, which, self.params, layer.q.placed, layer.k.placed
            )
            q, k = layer.q._replace(placed=q_placed), layer.k._replace(placed=k_placed)
            layer = dataclasses.replace(layer, encoding=encoding, params=params, q=q, k=k).filled()
        return layer.with_input(x_BQD, k_x_BKD)

    def _checked_input(self, call: str, name: str, x_BTD, side: Literal["q", "k"]) -> Tokens:
        """The tokens of a side. ValueError: x has another shape than they."""
        if side not in ("q", "k"):
            raise ValueError(f"frame.{call}: side {shown(side)} is not one of: 'q', 'k'")
        tokens: Tokens = getattr(self.alike, side)
        (rows, time), width = tokens.index_BT.shape, self.alike.dims.model
        check_array(f"frame.{call}.{name}", x_BTD)
        shape = jnp.shape(x_BTD)
        if len(shape) != 3 or shape[1:] != (time, width) or rows not in (1, shape[0]):
            batch = "B" if rows == 1 else rows
            raise ValueError(
                f"frame.{call}: {name} has shape {shape}; the frame is for "
                f"[{batch}, {time}, {width}]"
            )
        return tokens

    def _check_embedded(self, n: int | jax.Array | InPeriod) -> None:
        """ValueError: the encoding acts at the input, which was not embedded for this pass.

        In cross-attention both sides have an input. Keys that a causal frame is given are those of
        a cache, which were embedded when they were made.
        """
        if self.encoding.embed is None:
            return
        layers = self.alike.dims.layers
        for side in ("q", "k") if self.across or not self.embedded else ():
            if side not in self.embedded:
                call = "x = frame.embed(x)" if side == "q" else 'k_x = frame.embed(k_x, "k")'
                raise ValueError(
                    f"frame.layer: the encoding acts at the input; call {call} before the first "
                    "layer"
                )
        if isinstance(n, int) and layers > 1:
            if n == 0 and self.ended:
                raise ValueError(
                    "frame.layer: the last layer was asked for, which ends a forward pass; call "
                    "x = frame.embed(x) for another, or keep the layers to use them again"
                )
            self.ended |= n == layers - 1

    @functools.cached_property
    def period(self) -> int:
        """After how many layers their encodings repeat: 1 if layers differ in parameters alone.

        A scan over periods compiles the layers of one period: `frame.layer((n, i), x)`.
        """
        layers = range(self.alike.dims.layers)
        used = self._encodings(lambda n: list(layers))
        for period in layers[1:]:
            if all(used[n] == used[n % period] for n in layers):
                of_any = self._encodings(lambda n, p=period: [InPeriod(n, p, i) for i in range(p)])
                if of_any == used[:period]:
                    return period
        return len(layers)

    def _encodings(self, numbers: Callable[[jax.Array], list]) -> list[Encoding]:
        """The encodings of the layers `numbers(n)` for a traced n; [] if they differ by n."""
        encodings: list[Encoding] = []

        def note_encodings(n, params, q_placed, k_placed):
            for number in numbers(n):
                encodings.append(at_layer(self.encoding, number, params, q_placed, k_placed)[0])

        args = self.params, self.alike.q.placed, self.alike.k.placed
        try:
            jax.eval_shape(note_encodings, jax.ShapeDtypeStruct((), jnp.int32), *args)
        except ValueError:  # a traced layer, and layers use different encodings
            return []
        return encodings

    def _in_period(self, n_place: tuple) -> int | jax.Array | InPeriod:
        """The number of layer `place` of period n, of a pair (n, place).

        ValueError: it is no such pair, or the period has no such layer.
        """
        if len(n_place) != 2:
            raise ValueError(f"frame.layer: {n_place!r} is not (n, i)")
        n, place = n_place[0], whole_number("frame.layer", n_place[1])
        if not isinstance(place, int) or not 0 <= place < self.period:
            raise ValueError(
                f"frame.layer: no layer {place} in a period of {self.period}, counted from 0"
            )
        if isinstance(n, Tracer):
            return InPeriod(n, self.period, place)
        return whole_number("frame.layer", n) * self.period + place

    def layers_alike(self) -> bool:
        """Whether layers differ in parameters alone, so that `layer` takes a traced number."""
        encodings = self._encodings(lambda n: list(range(self.alike.dims.layers)))
        return all(encoding == encodings[0] for encoding in encodings)


def frame(
    encoding: Encoding,
    params: Params,
    layout: Layout,
    dims: Dims,
    keys: Layout | None = None,
    *,
    queries: tuple[int | jax.Array, int] | None = None,
    causal: bool | None = None,
    placed: Placed = None,
    form: Form = "auto",
    block: Count = 512,
    mask_padding: bool = True,
    heads: tuple[int | jax.Array, int] | None = None,
    ring: str | None = None,
) -> Frame:
    """Prepares a forward pass: positions, tables, and in the dense form the bias and the mask.

    Self-attention: keys are the queries' own tokens, `frame(encoding, params, layout, dims)`.
    Memory or a key-value cache: `layout` is that of all tokens, and `queries` says which are new.
    Cross-attention: `layout` and `keys` are of queries and of keys, each with its own positions.

    Args:
      encoding: the positional encoding.
      params: its parameters, from `encoding.init(key, dims)`; also in other containers that have
        the same keys, such as an `nnx.State` or a FrozenDict.
      layout: the tokens, fields [B|1, T].
      dims: sizes of the model.
      keys: the keys' tokens, fields [B|1, K], where they are others than the queries'.
      queries: (start, size): the queries are the columns start .. start + size - 1 of `layout`;
        None: all. The start is one whole number, or [B] where rows begin at columns of their own,
        as in continuous batching. It may be traced; the output of a row whose columns do not lie
        within is NaN.
      causal: whether a query sees only keys with an index up to its own. None: True, and False
        where `keys` are given. It must be stated for an encoding that reads `both_sides`.
      placed: positions that `encoding.place(key, layout)` drew, in training, or where it is None
        positions as `layout` takes them; None: it is asked here, without a key. With `keys` a pair:
        the queries' and the keys'.
      form: "auto", "dense", "blockwise" or "kernel", see `Frame`.
      block: side of the square blocks; the kernel's are multiples of 128.
      mask_padding: False switches the padding mask off, as an experiment on leakage: padding is
        visible as if it were real. Causality still holds. (A mask of your own is an argument of
        `attend`.)
      heads: (start, total): `dims.heads` are the heads of this device, which begin with number
        `start` of the model's `total`; None: all. Parameters are those of these heads, as
        `posenc_jax.head_specs` cuts them. In `jax.shard_map` the start is
        `jax.lax.axis_index(axis) * dims.heads`; one that is traced and out of range gives NaN.
      ring: inside of `jax.shard_map` the mesh axis over whose devices the tokens are spread;
        `layout` has those of this device, and `posenc_jax.ring` attends to all. None: it has all.

    FieldError, a ValueError: an argument of another type, a form or block outside its choices, or
    parameters of other keys or made for other sizes.
    ValueError: a method that the kernel does not take, no `causal` for an encoding that reads both
    sides of a token, queries that do not lie within the tokens,
    or placed positions of another structure, shape or dtype.
    """
    checked_all("frame", frame, encoding=encoding, layout=layout, dims=dims, keys=keys)
    options = checked_all(
        "frame", frame, causal=causal, mask_padding=mask_padding, form=form, block=block
    )
    params = structured_params(encoding, params, dims)
    params_of_heads = params if heads is None else of_heads(encoding, params, dims, heads)
    check_shapes(encoding, params, dims)
    params = params_of_heads
    if ring is not None:
        if keys is not None or queries is not None:
            raise ValueError("ring: for self-attention alone; leave keys and queries out")
        layout = dataclasses.replace(layout, counted=False)
        if placed is None and encoding.place is not None:
            placed = placed_over(ring, encoding, layout)
    if queries is not None:
        queries = checked_queries(layout, keys, queries)
    q, k = frame_sides(encoding, layout, keys, queries, placed)
    if ring is not None:  # columns are those of one device
        q, k = (side._replace(token_BT=side.index_BT) for side in (q, k))
    first = 0 if queries is None else queries[0]
    counted = (
        _counts_up(encoding, layout, moved=keys is not None or placed is not None)
        and mask_padding
        and k.index_BT.shape[1] > 0
        and q.placed.ndim == 2
        and jnp.ndim(first) == 0
    )
    stored_straight = None
    if counted and layout.facts.in_order:
        stored_straight = np.True_
    elif counted:
        arrays_BT = layout.segment_BT, layout.pos_BT
        stored_straight = partitioned(straight, layout.index_BT, 0, *arrays_BT)
    self_attention, chosen = keys is None and queries is None, form == "auto"
    if causal is None:
        if encoding.both_sides and keys is None:
            raise ValueError(
                f"frame.causal: {encoding.name} reads tokens on both sides of a token, which in "
                "causal attention shows it what comes after it; give causal=False"
            )
        options["causal"] = keys is None
    layer = Layer(
        params,
        q,
        k,
        first,
        stored_straight,
        encoding,
        dims,
        self_attention,
        chosen=chosen,
        ring=ring,
        **options,
    )
    tokens = {"q": layout, "k": layout if keys is None else keys}
    padded = tuple(side for side, at in tokens.items() if not at.facts.unpadded)
    layer = dataclasses.replace(layer, indexed=layout.indexed, padded=padded)
    by_row = self_attention and counted and encoding.bias is not None
    if not tokens["k"].facts.in_order:
        layer = _with_order(layer, None if keys is not None else layout, by_row, mask_padding)
    layer = dataclasses.replace(layer, form=_form(layer))
    if not isinstance(first, int):
        layer = layer.only_if((first >= 0) & (first <= k.index_BT.shape[1] - q.index_BT.shape[1]))
    across = keys is not None and not layer.causal
    layer = layer if encoding.at is not None else layer.filled()
    return Frame(params, layer, encoding, across=across)


def _counts_up(encoding: Encoding, layout: Layout, moved: bool) -> bool:
    """Whether positions are a row's own columns 0, 1, ..: as far as it shows before a program runs.

    moved: there are positions of the caller's own.
    """
    moved |= encoding.place is not None or encoding.locate is not None
    return layout.counted and (layout.indexed or encoding.walk is None) and not moved


def _with_order(layer: Layer, layout: Layout | None, by_row: bool, mask_padding: bool) -> Layer:
    """The layer with the order in which it reads the columns of keys, if it needs one.

    Args:
      layer: not yet with its form.
      layout: of the queries' own tokens; None where the keys are others.
      by_row: whether a bias may be a row of offsets.
      mask_padding: as of `frame`.
    """
    k, walk = layer.k, layer.encoding.walk
    if not by_row and walk is None:
        return layer
    index_BT = k.index_BT
    if walk is not None and layout is not None and layout.counted and not layout.indexed:
        arrays_BT = k.segment_BT, index_BT, layout.pos_BT
        index_BT = partitioned(told_apart, index_BT, 2, *arrays_BT)
    what = by_row, walk is not None, walk is not None and walk.whole, mask_padding
    make_order = functools.partial(_order, *what)
    token_arrays = layer.straight, k.segment_BT, index_BT, k.placed if by_row else None
    order, steady = partitioned(make_order, k.index_BT, 2, *token_arrays)
    return dataclasses.replace(layer, order=order, steady=steady)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3), inline=True)
def _order(
    by_row: bool, walks: bool, whole: bool, mask_padding: bool, line, segment_BT, index_BT, pos_BT
) -> tuple[Order, jax.Array | None]:
    """The order in which attention reads columns, and whether positions count up in that order.

    Sums over keys need the order of the index. A row of offsets needs positions that count up, so
    that holes are closed as well; so do scores that read the keys beside a key (`whole`).
    """
    if not mask_padding:
        segment_BT = jnp.ones_like(segment_BT)
    stored = line if by_row else jnp.all(segment_BT == segment_BT)
    if walks:
        stored &= rising(segment_BT, index_BT)
    if whole:
        stored &= contiguous(segment_BT)
    order = order_of(stored, segment_BT, index_BT if walks else pos_BT)
    if not by_row:
        return order, None
    straight_then = lambda stored, order, *by: counting_up(*order.arranged(by))
    arrays = stored, order, segment_BT, pos_BT
    return order, cond(stored, lambda stored, *_: stored, straight_then, *arrays)


def _form(layer: Layer) -> str:
    """The form of attention, chosen by sizes where it is "auto". ValueError: it does not fit."""
    form, walk = layer.form, layer.encoding.walk
    if walk is not None and walk.whole:
        if form in ("auto", "dense"):
            return "dense"
        raise ValueError(f"form: {form!r} does not take scores that read other keys; use 'dense'")
    if form == "kernel" and (reason := _kernel_refuses(layer)):
        raise ValueError(kernels.refusal(reason))
    if form != "auto":
        return form
    queries, keys = layer.sizes
    if not isinstance(queries, int) or not isinstance(keys, int):
        return "dense"  # of symbolic sizes (`jax.export`) nothing else is known
    if kernels_fit(layer.dims.heads * queries * keys) and not _kernel_refuses(layer):
        return "kernel"
    return layer.without_kernel


def _kernel_refuses(layer: Layer) -> str:
    """Why no kernel, or `auto`, takes the method in some layer; "" if they do."""
    args = layer.encoding, layer.params, layer.q.placed, layer.k.placed
    layers = (at_layer(args[0], n, *args[1:]) for n in range(layer.dims.layers))
    for encoding, params, *placed in {of_layer[0]: of_layer for of_layer in layers}.values():
        q, k = (side._replace(placed=x) for side, x in zip((layer.q, layer.k), placed, strict=True))
        of_layer = dataclasses.replace(layer, encoding=encoding, params=params, q=q, k=k)
        if reason := kernels.refuses(of_layer):
            return reason
    return ""

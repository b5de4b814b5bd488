"""Checks of a positional encoding: what each one must prove, as functions that anyone can call.

    from posenc_jax import testing

    testing.check("mine", slope=2.0)                   # a registered method, held to its card
    testing.check(encoding, shift_invariant=True)      # an Encoding, held to what you claim
    testing.padding(testing.trial(encoding))           # one property alone

`check` prints nothing, takes half a minute to a minute on a CPU, and returns the names of what it
checked. A check that fails raises an AssertionError of one line: the property, what was compared,
where the largest difference is (layer, row, token, head), its size and the bound. Attention runs on
random queries, keys, values and parameters of a small model. Each check first makes sure that it
could fail: an encoding whose outputs it cannot tell apart does not pass.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.attention import attend, frame
from posenc_jax.attention import logits as attention_logits
from posenc_jax.attention.frames import Form
from posenc_jax.encoding import Dims, Encoding, Params, at_layer, place
from posenc_jax.encodings import CATALOG, card, make
from posenc_jax.layout import Layout, layout
from posenc_jax.options import checked_all

TIME, ROWS = 24, 4  # of a pass: with one shape for all, small operations compile once
COLUMNS, GROUPS = 6, 5
EARLY = 16  # the tokens before this one are the early ones
DIMS = Dims(model=32, heads=4, head=8)
CAP = 3.0
SAME, SAME_GRADIENT = 1e-5, 2e-4  # of sums in another order
RIGHT, LEFT = [1] * 17 + [0] * 7, [0] * 7 + [1] * 17  # padding on the right, on the left
PACKED = [1] * 7 + [2] * 17
ORDER = np.random.default_rng(0).permutation(TIME)
FAR = 1_000_000

Positions = Callable[[Any, Any, Any], jax.Array]  # (time, row, column) [B, T] to positions
Definition = Callable[..., np.ndarray]  # see `parity`
OUT = "layer row token head channel"


def grid(axes: int) -> Positions:
    """The last of (time, row, column), [B, T, axes]; the time alone, [B, T], for one axis."""
    if axes < 2:
        return lambda time, row, column: time
    return lambda *place: jnp.stack(place[-axes:], axis=-1)


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """An encoding with what the checks need. Made by `trial`.

    encoding: what is checked.
    params:   random parameters of it.
    dims:     sizes of the model; each layer is checked.
    label:    its name in messages.
    shift_invariant: the claim that scores depend on positions through i - j alone; None: no claim.
    tells_order: the claim that it tells order without a causal mask; None: no claim.
    axes:     position axes that it reads; 0: none, only the order in which tokens stand.
    positions: makes the positions of (time, row, column).
    """

    encoding: Encoding
    params: Params
    dims: Dims
    label: str
    shift_invariant: bool | None
    tells_order: bool | None
    axes: int
    place: Positions

    @property
    def layers(self) -> range:
        """The layers to check: one where all are alike."""
        return range(1 if self.encoding.at is None else self.dims.layers)

    # NumPy arrays, since what is made inside of `jit` must not outlive it.
    @functools.cached_property
    def projections(self) -> dict[str, np.ndarray]:
        """Random matrices that make queries, keys and values of x; two query heads share a key."""
        rng, heads = np.random.default_rng(7), self.dims.heads
        shared = heads // 2 if heads % 2 == 0 else heads
        sizes = {"q": heads, "k": shared, "v": shared}
        draw = lambda heads: rng.normal(size=(self.dims.model, heads, self.dims.head))
        scale = self.dims.model**-0.5
        return {side: (draw(n) * scale).astype(np.float32) for side, n in sizes.items()}

    @functools.cached_property
    def options(self) -> tuple[np.ndarray | None, float | None]:
        """A sink for each head and a cap, options of `attend`, wherever the method takes them."""
        walk = self.encoding.walk
        sink_H = np.random.default_rng(8).normal(size=self.dims.heads).astype(np.float32)
        return (
            None if walk is not None and walk.weighs else sink_H,
            None if walk is not None and walk.corrects else CAP,
        )

    @functools.cached_property
    def causal_rows(self) -> dict[str, np.ndarray]:
        """Outputs [N, 1, T, H, C] of the rows that several checks compare.

        `alone` is the last 17 tokens of the text, first in their row and not padded: another
        document follows, which no causal query sees. So all rows are the same programs.
        """
        text, other = (tokens_of(self.dims, seed) for seed in (1, 2))
        first = np.arange(TIME)[:, None] < 7
        left, unaware = row(self, LEFT), row(self, shift=1)  # counts the padding too
        return _rows(
            self,
            text=(text, row(self)),
            later=(np.where(np.arange(TIME)[:, None] < EARLY, text, other), row(self)),
            moved=(text, row(self, shift=7)),
            packed=(text, row(self, PACKED)),
            first=(np.where(first, text, other), row(self, PACKED)),
            second=(np.where(first, other, text), row(self, PACKED)),
            alone=(np.concatenate([text[7:], other[:7]]), row(self, [1] * 17 + [2] * 7)),
            right=(np.roll(text, -7, axis=0), row(self, RIGHT)),
            left=(text, left),
            unaware=(
                text,
                dataclasses.replace(
                    left, pos_BT=unaware.pos_BT * 2, group_BT=unaware.group_BT, counted=False
                ),
            ),
        )

    @functools.cached_property
    def open_rows(self) -> dict[str, np.ndarray]:
        """The same without a causal mask; `shuffled` is the text in another order."""
        text, other = (tokens_of(self.dims, seed) for seed in (1, 2))
        later = np.where(np.arange(TIME)[:, None] < EARLY, text, other)
        rows = {"text": text, "later": later, "shuffled": text[ORDER]}
        return _rows(self, causal=False, **{name: (x, row(self)) for name, x in rows.items()})

    @functools.cached_property
    def dense(self) -> "Derivatives":
        """What the dense form makes of mixed rows, and its gradients."""
        return _derivatives(self, "dense")


def trial(
    encoding: Encoding | str,
    *,
    dims: Dims = DIMS,
    seed: int = 0,
    axes: int | None = None,
    shift_invariant: bool | None = None,
    tells_order: bool | None = None,
    **options: Any,
) -> Trial:
    """What the checks need of an encoding: random parameters, sizes, and what is claimed of it.

    Args:
      encoding: an Encoding, or the name of a method, with its options.
      dims: sizes of the model; with 2 layers or more if layers differ.
      seed: of the parameters: those of `encoding.init` and noise, so that one that starts at 0 is
        seen at work.
      axes: position axes that it reads: 1 for sequences, 2 for (row, column), 3 for (time, row,
        column). None: as its card says, or 1.
      shift_invariant: see `Trial`; None: as its card says.
      tells_order: see `Trial`; None: as its card says, or True.

    FieldError: no such method or option, or no encoding.
    """
    name = encoding if isinstance(encoding, str) else str(getattr(encoding, "name", ""))
    if isinstance(encoding, str):
        encoding = make(encoding, **options)
    else:
        checked_all("trial", trial, encoding=encoding)
    if encoding.at is not None and dims.layers == 1:
        dims = dataclasses.replace(dims, layers=2)
    method = card(name) if name in CATALOG else None
    if method is not None:
        axes = method.axes if axes is None else axes
        if shift_invariant is None and method.kind != "positions":
            shift_invariant = method.shift_invariant
        tells_order = method.kind != "none" if tells_order is None else tells_order
    return Trial(
        encoding=encoding,
        params=random_params(encoding, dims, seed),
        dims=dims,
        label=name or "encoding",
        shift_invariant=shift_invariant,
        tells_order=True if tells_order is None else tells_order,
        axes=1 if axes is None else axes,
        place=grid(1 if axes is None else axes),
    )


def random_params(encoding: Encoding, dims: Dims, seed: int = 0) -> Params:
    """Parameters of an encoding with noise, so that one that starts at 0 is seen at work."""
    rng = np.random.default_rng(seed)

    def noisy(leaf):
        if not isinstance(leaf, jax.Array | np.ndarray):
            return leaf  # which `hooks` refuses
        return leaf + np.asarray(0.3 * rng.normal(size=leaf.shape), leaf.dtype)

    return jax.tree.map(noisy, encoding.init(jax.random.key(seed), dims))


def tokens_of(dims: Dims, seed: int) -> np.ndarray:
    """Random vectors of a row of tokens, float32 [T, D]."""
    return np.random.default_rng(seed).normal(size=(TIME, dims.model)).astype(np.float32)


def where(t: Trial, segment_BT: Any, shift: int = 0, stretch: int = 1) -> Layout:
    """The layout of rows as the encoding reads them, at positions stretch * n + shift.

    Groups go round in each sequence, 0 1 2 3 4 0 1 and so on, as numbers of four digits would.
    """
    at = layout(jnp.asarray(np.asarray(segment_BT, np.int32)))
    n_BT, moved = at.pos_BT, t.axes > 1 or (shift, stretch) != (0, 1)
    fields: dict[str, Any] = {"group_BT": n_BT % GROUPS * stretch}
    if moved:
        places = (n_BT, n_BT // COLUMNS, n_BT % COLUMNS)
        fields["pos_BT"] = t.place(*(place * stretch + shift for place in places))
        fields["counted"] = False
    return dataclasses.replace(at, **fields)


def _uncounted(at: Layout) -> Layout:
    return dataclasses.replace(at, counted=False)


def row(t: Trial, segment_T: Sequence[int] = (1,) * TIME, **moved: int) -> Layout:
    """The layout of one row."""
    return where(t, [segment_T], **moved)


def outputs(
    t: Trial,
    x_BTD: jax.Array,
    at: Layout,
    params: Params = None,
    *,
    queries: tuple[int, int] | None = None,
    keys: tuple[jax.Array, Layout] | None = None,
    form: Form = "dense",
    placed: Any = None,
    **options: Any,
) -> jax.Array:
    """Attention's outputs of every layer, [N, B, Q, H, C]; x is the input of each of them.

    Args:
      x_BTD: of all tokens; queries, keys and values are made of it.
      queries: (start, size) of the tokens that ask, with a key-value cache.
      keys: x and layout of the keys' tokens in cross-attention.
      options: of `frame`.
    """
    params = t.params if params is None else params
    options = {"causal": keys is None, **options}
    k_x, k_at = keys if keys is not None else (x_BTD, None)
    view = frame(
        t.encoding, params, at, t.dims, k_at, queries=queries, form=form, placed=placed, block=8,
        **options,
    )  # fmt: skip
    apart = queries is not None or keys is not None
    if queries is not None:
        x_BTD = x_BTD[:, queries[0] : sum(queries)]
    x_BTD = view.embed(x_BTD)
    k_x = view.embed(k_x, "k") if apart else x_BTD
    heads = lambda x, name: jnp.einsum(
        "btd,dhc->bthc", x, jnp.asarray(t.projections[name], x.dtype)
    )
    q, k, v = heads(x_BTD, "q"), heads(k_x, "k"), heads(k_x, "v")
    read = (lambda n: view.layer(n, x_BTD, k_x)) if apart else (lambda n: view.layer(n, x_BTD))
    sink_H, cap = t.options
    sink_H = None if sink_H is None else jnp.asarray(sink_H)
    return jnp.stack([attend(q, k, v, read(n), sink_H=sink_H, cap=cap) for n in t.layers])


def _rows(t: Trial, causal: bool = True, **rows: tuple[Any, Layout]) -> dict[str, np.ndarray]:
    """The outputs [N, 1, T, H, C] of named rows, each of x [T, D] and the layout of this row alone.

    A few rows in a pass: running a pass op by op costs more than what it computes.
    """
    done, names = {}, list(rows)
    for group in (names[n : n + ROWS] for n in range(0, len(names), ROWS)):
        filled = [rows[name] for name in group + group[:1] * (ROWS - len(group))]
        x_BTD = jnp.asarray(np.stack([np.asarray(x) for x, _ in filled]))
        join = lambda *leaves: jnp.asarray(np.concatenate([np.asarray(leaf) for leaf in leaves]))
        at = jax.tree.map(join, *(_uncounted(at) for _, at in filled))
        out = np.asarray(outputs(t, x_BTD, at, causal=causal))
        done |= {name: out[:, n : n + 1] for n, name in enumerate(group)}
    return done


# What a comparison says: every check ends in one of these three.


def same(t: Trial, what: str, got: Any, wanted: Any, bound: float, axes: str = "") -> None:
    """AssertionError: two arrays differ by more than the bound, or one is NaN.

    Args:
      what: the property and what was compared, "causality: ...".
      axes: what the axes of the arrays count, "layer token head".
    """
    off, got, wanted = _differences(got, wanted), np.asarray(got), np.asarray(wanted)
    if off.size and not off.max() <= bound:
        at = np.unravel_index(off.argmax(), off.shape)
        there = ", ".join(f"{a} {i}" for a, i in zip(axes.split(), at, strict=False))
        size = f"{got[at]:.6g} and {wanted[at]:.6g} differ by {off[at]:.3g}"
        raise AssertionError(f"{t.label}: {what}: {there}: {size}; the bound is {bound:g}")


def differs(t: Trial, what: str, got: Any, other: Any, least: float) -> None:
    """AssertionError: two arrays are nowhere as far apart as they must be."""
    both_nan = np.isnan(np.asarray(got)) & np.isnan(np.asarray(other))
    most = np.where(both_nan, 0.0, _differences(got, other)).max(initial=0.0)
    if not most > least:
        largest = f"the largest difference is {most:.3g}"
        raise AssertionError(f"{t.label}: {what}: {largest}; it must be above {least:g}")


def _differences(got: Any, other: Any) -> np.ndarray:
    """The distance of each two numbers; 0 for equal infinities, infinite where one is NaN."""
    got, other = np.asarray(got, np.float64), np.asarray(other, np.float64)
    with np.errstate(invalid="ignore"):
        off = np.where(got == other, 0.0, np.abs(got - other))
    return np.where(np.isnan(off), np.inf, off)


def _control(t: Trial, what: str, got: Any, other: Any, least: float) -> None:
    """AssertionError: what must differ does not, so the check would not have seen a fault."""
    differs(t, f"{what}, the control of this check", got, other, least)


def causality(t: Trial) -> None:
    """A later token changes no earlier output, to the bit, and has no gradient from one.

    The control: without the causal mask it changes them, and later outputs have gradients there.
    """
    rows, open_rows, early = t.causal_rows, t.open_rows, np.s_[:, :, :EARLY]
    what = f"causality: tokens from {EARLY} on change an output before them"
    same(t, what, rows["text"][early], rows["later"][early], 0.0, OUT)
    _control(t, what, open_rows["text"][early], open_rows["later"][early], 1e-3)
    what = "causality: gradient of an earlier output with respect to a later token"
    late = lambda grads: np.where(np.arange(TIME)[:, None] >= EARLY, grads[1], 0)
    same(t, what, late(t.dense.early), 0 * late(t.dense.early), 0.0, "row token channel")
    _control(t, what, late(t.dense.grads), 0 * late(t.dense.grads), 1e-3)


def padding(t: Trial) -> None:
    """What stands in the padding, on either side, changes no real output and no gradient of one, be
    it NaN.

    The control: with the padding mask off it does.
    """
    real = np.array([np.arange(TIME) < 12] * 2 + [np.arange(TIME) >= 12] * 2)
    text, other = tokens_of(t.dims, 5), tokens_of(t.dims, 6)
    x_BTD = np.where(real[..., None], text, np.stack([text, other] * 2))
    at, shown = where(t, real), real[None, ..., None, None]
    run = lambda x, mask: outputs(t, x, at, causal=False, mask_padding=mask)
    changed_B11 = np.array([False, True] * 2)[:, None, None]
    holes_BTD = np.where(changed_B11 & ~real[..., None], np.nan, x_BTD)
    holes_BTD[:, ::2] = x_BTD[
        :, ::2
    ]  # every second token of the padding is NaN, the others are not
    out, pull = jax.vjp(lambda x: run(x, True), jnp.asarray(holes_BTD))
    (grads,) = pull(jnp.asarray(np.where(shown, np.asarray(out) * 0 + 1, 0)))
    out, grads = np.where(shown, out, 0), np.where(real[..., None], grads, 0)
    what = "padding: other content of the padding (row 0: on the right, 1: on the left) changes"
    same(t, f"{what} a real output", out[:, ::2], out[:, 1::2], 0.0, OUT)
    same(t, f"{what} a gradient", grads[::2], grads[1::2], 0.0, "row token channel")
    leaky = np.where(shown, run(jnp.asarray(x_BTD), False), 0)
    _control(t, what, leaky[:, ::2], leaky[:, 1::2], 1e-4)


def padding_side(t: Trial) -> None:
    """A sequence gives the same outputs with padding on the left, on the right, or with none.

    For the control see `positions`.
    """
    rows = t.causal_rows
    alone, left = rows["alone"][:, :, :17], rows["left"][:, :, 7:]
    same(t, "padding: on the right, and none", rows["right"][:, :, :17], alone, SAME, OUT)
    same(t, "padding: on the left, and none", left, alone, SAME, OUT)


def positions(t: Trial) -> None:
    """Positions twice as far apart change the outputs, unless it is said to read none."""
    left, unaware = (t.causal_rows[name][:, :, 7:] for name in ("left", "unaware"))
    if not t.axes:
        what = "positions: it is said to read none; twice as far apart"
        same(t, what, unaware, left, 0.0, OUT)
    elif t.tells_order:
        differs(t, "positions: outputs at positions twice as far apart", left, unaware, 1e-4)


def storage(t: Trial) -> None:
    """Tokens stored in another order, with their positions, give the same outputs in that order."""
    text, at = tokens_of(t.dims, 1), _uncounted(row(t))
    moved = jax.tree.map(lambda leaf: leaf[:, ORDER], at)
    walks = t.encoding.walk is not None  # sums over keys up to the query's own
    rows = _rows(t, causal=walks, text=(text, at), stored=(text[ORDER], moved))
    what = "storage: tokens stored in another order, with their positions"
    same(t, what, rows["stored"], rows["text"][:, :, ORDER], SAME, OUT)
    if t.tells_order and not walks:
        _control(t, what, t.open_rows["shuffled"], rows["stored"], 1e-3)
    if walks:
        _control(t, what, rows["text"], rows["stored"], 1e-3)


def packing(t: Trial) -> None:
    """Packed documents: each is as if alone, and changing one leaves the other to the bit.

    The control: the same tokens as one document.
    """
    rows, first_document, second_document = t.causal_rows, np.s_[:, :, :7], np.s_[:, :, 7:]
    what = "packing: another document in the row changes"
    same(
        t,
        f"{what} the first",
        rows["packed"][first_document],
        rows["first"][first_document],
        0.0,
        OUT,
    )
    same(
        t,
        f"{what} the second",
        rows["packed"][second_document],
        rows["second"][second_document],
        0.0,
        OUT,
    )
    alone = rows["alone"][:, :, :17]
    same(
        t,
        "packing: a document and the same alone",
        rows["packed"][second_document],
        alone,
        SAME,
        OUT,
    )
    _control(t, "packing", rows["packed"][second_document], rows["text"][second_document], 1e-3)


def shift(t: Trial) -> None:
    """A shift of all positions changes nothing if that is claimed; if not, here it does."""
    moved, text = t.causal_rows["moved"], t.causal_rows["text"]
    if t.shift_invariant:
        what = "shift: it is said to be invariant, and all positions moved by 7 change"
        same(t, what, moved, text, 2 * SAME, OUT)
    elif t.shift_invariant is False:
        differs(t, "shift: it is said not to be invariant; a shift by 7", moved, text, 1e-4)


def order(t: Trial) -> None:
    """Without a causal mask, tokens in another order give other outputs, if it tells order."""
    text, shuffled = t.open_rows["text"][:, :, ORDER], t.open_rows["shuffled"]
    if t.tells_order:
        what = "order: without a causal mask, outputs of the tokens in another order"
        differs(t, what, text, shuffled, 1e-3)
    elif t.tells_order is False:
        same(t, "order: it is said to tell none", shuffled, text, SAME, OUT)


class Derivatives(NamedTuple):
    """Outputs, and gradients with respect to (parameters, x): of all outputs, and of early ones."""

    out: np.ndarray
    grads: Any
    early: Any


def _derivatives(t: Trial, form: Form) -> Derivatives:
    """Outputs and gradients of rows with packed documents, and with padding, which has weight 0."""
    at = where(t, [[1] * 9 + [2] * 15, [1] * 20 + [0] * 4, LEFT, RIGHT])
    at = _uncounted(at) if form == "dense" else at  # the others read one row of offsets
    real = np.asarray(at.segment_BT > 0)[None, ..., None, None]
    x_BTD = jnp.asarray(np.stack([tokens_of(t.dims, seed) for seed in (11, 12, 13, 14)]))
    out, pull = jax.vjp(lambda params, x: outputs(t, x, at, params, form=form), t.params, x_BTD)
    weights = np.random.default_rng(15).normal(size=out.shape).astype(np.float32) * real
    early = np.where(np.arange(TIME)[:, None, None] < EARLY, weights, 0)
    grads, of_early = (jax.tree.map(np.asarray, pull(jnp.asarray(w))) for w in (weights, early))
    return Derivatives(np.where(real, out, 0), grads, of_early)


def forms(t: Trial, kernel: bool = True) -> None:
    """Dense attention, blocks, and the kernel where it takes the method: outputs and gradients.

    The kernel is interpreted on a CPU, which takes seconds. The control: other segments.
    """
    walk = t.encoding.walk
    if walk is not None and walk.whole:
        try:
            frame(t.encoding, t.params, where(t, [RIGHT]), t.dims, causal=True, form="blockwise")
        except ValueError:
            return
        raise AssertionError(f"{t.label}: forms: scores that read other keys are not refused")
    others: list[Form] = ["blockwise", "kernel"]
    for form in others[: 1 + kernel]:
        if form == "kernel" and not _kernel_takes(t):
            continue
        derivatives = _derivatives(t, form)
        same(t, f"forms: {form} and dense", derivatives.out, t.dense.out, SAME, OUT)
        leaves = jax.tree_util.tree_leaves_with_path((derivatives.grads, derivatives.early))
        for (path, got), wanted in zip(
            leaves, jax.tree.leaves((t.dense.grads, t.dense.early)), strict=True
        ):
            leaf = "x" if path[1].idx else f"params{jax.tree_util.keystr(path[2:])}"
            what = f"forms: gradient with respect to {leaf}, {form} and dense"
            same(t, what, got, wanted, SAME_GRADIENT, "row token channel" if leaf == "x" else "")
    x_BTD = jnp.asarray(np.stack([tokens_of(t.dims, 11)] * ROWS))
    whole = outputs(t, x_BTD, where(t, [[1] * TIME]))
    _control(t, "forms", t.dense.out, whole, 1e-2)


def _kernel_takes(t: Trial) -> bool:
    try:
        frame(t.encoding, t.params, where(t, [RIGHT]), t.dims, causal=True, form="kernel")
    except ValueError:
        return False
    return True


def decoding(t: Trial) -> None:
    """Tokens, and a few at once, after keys that are there already equal the full pass.

    With padding on the left, and none. The cache is as long as what was read, or longer: what
    stands in columns that are not written yet changes nothing. The control: a cache that forgets
    its first tokens.
    """
    at = where(t, [[1] * TIME, [0] * 5 + [1] * (TIME - 5)] * 2)
    real = np.asarray(at.segment_BT > 0)
    x_BTD = np.stack([tokens_of(t.dims, seed) for seed in (21, 22, 21, 22)])
    x_BTD[2:] = np.where(real[2:, :, None], x_BTD[2:], 1 - x_BTD[2:])  # other tokens as padding
    full = np.asarray(outputs(t, jnp.asarray(x_BTD), at))

    def step(x_BTD, start, stop, columns):
        """The outputs of new tokens, with a cache of so many columns; 0 in the padding."""
        cache = jax.tree.map(lambda leaf: leaf[:, :columns], at)
        new = (start, stop - start)
        out = outputs(t, jnp.asarray(x_BTD[:, :columns]), cache, queries=new)
        return np.where(real[None, :, start:stop, None, None], out, 0)

    for start, stop, columns in ((8, 16, 16), (16, 17, TIME), (17, 18, TIME)):
        unwritten = np.arange(TIME)[:, None] >= stop
        stepwise = step(np.where(unwritten, 3 - x_BTD, x_BTD), start, stop, columns)
        wanted = np.where(real[None, :, start:stop, None, None], full[:, :, start:stop], 0)
        what = f"decoding: from token {start} on, with a cache of {columns} and in the full pass"
        same(t, what, stepwise, wanted, SAME, OUT)
        same(
            t, "decoding: other content of the padding", stepwise[:, 2:], stepwise[:, :2], 0.0, OUT
        )
    forgets = np.where(np.arange(TIME)[:, None] < 8, 0, x_BTD)
    _control(t, "decoding", step(forgets, 8, 16, 16), step(x_BTD, 8, 16, 16), 1e-3)


def cross(t: Trial) -> None:
    """Fewer queries, as tokens of their own beside the keys, attend as they do among all tokens.

    Keys in the padding change nothing, to the bit. The control: queries at other positions.
    """
    few = slice(0, 11)
    at = where(t, [[1] * 9 + [2] * 15] + [[1] * 20 + [0] * 4] * 3)
    real = np.asarray(at.segment_BT > 0)
    x_BTD = np.stack([tokens_of(t.dims, seed) for seed in (31, 32, 32, 32)])
    x_BTD[2] = np.where(real[2, :, None], x_BTD[2], tokens_of(t.dims, 33))
    x_BTD = jnp.asarray(x_BTD)
    moved = where(t, at.segment_BT, shift=3, stretch=2)
    join = lambda here, there: jnp.concatenate([here[:3, few], there[3:, few]])
    cut = jax.tree.map(join, _uncounted(at), _uncounted(moved))
    among = outputs(t, x_BTD, at, causal=False)[:, :3, few]
    blocks = t.encoding.walk is None or not t.encoding.walk.whole
    both: list[Form] = ["dense", "blockwise"]
    for form in both[: 1 + blocks]:
        apart_outputs = outputs(t, x_BTD[:, few], cut, keys=(x_BTD, at), form=form)
        what = f"cross-attention ({form}): queries apart from the keys, and among them"
        same(t, what, apart_outputs[:, :3], among, SAME, OUT)
        what = f"cross-attention ({form}): keys in the padding change"
        same(t, what, apart_outputs[:, 1], apart_outputs[:, 2], 0.0, "layer token head channel")
        if not t.axes or t.tells_order is False:
            what = f"cross-attention ({form}): it is said to read no positions; a shift changes"
            same(t, what, apart_outputs[:, 1], apart_outputs[:, 3], 0.0, "layer token head channel")
        elif (
            not np.abs(apart_outputs[:, 1] - apart_outputs[:, 3]).max() > 1e-4
        ):  # the queries' positions are unread
            apart = outputs(t, x_BTD[:, few], cut, keys=(x_BTD, moved), form=form)
            _control(t, f"cross-attention ({form}): keys elsewhere", apart, apart_outputs, 1e-4)


def relative(t: Trial) -> None:
    """A bias that says `relative` depends on q_placed - k_placed alone, far out too."""
    at = where(t, [[1] * TIME])
    placed = place(t.encoding, None, at)
    for n in t.layers:
        encoding, params, here = at_layer(t.encoding, n, t.params, placed)
        if encoding.bias is None or not encoding.relative:
            continue
        near = np.asarray(encoding.bias(params, here, here, t.dims))
        for by in (7, 1000):
            there = jax.tree.map(lambda leaf, by=by: leaf + by, here)
            moved = np.asarray(encoding.bias(params, there, there, t.dims))
            what = f"relative: bias at positions moved by {by}, layer {n}"
            bound = SAME * float(np.abs(near).max(initial=1.0, where=np.isfinite(near)))
            same(t, what, moved, near, bound, "row head query key")


def hooks(t: Trial) -> None:
    """Parameters are arrays; every hook takes float32 and bfloat16, and returns what it must."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(t.params):
        if not isinstance(leaf, jax.Array | np.ndarray):
            named = jax.tree_util.keystr(path)
            raise AssertionError(f"{t.label}: hooks: init{named} is a {type(leaf).__name__}")
    for dtype in (jnp.float32, jnp.bfloat16):
        try:
            out = outputs(t, jnp.asarray(tokens_of(t.dims, 41)[None], dtype), row(t))
        except (ValueError, TypeError) as error:
            line = str(error).strip().splitlines()[0]
            raise AssertionError(f"{t.label}: hooks: in {dtype.__name__}: {line}") from error
        if out.dtype != dtype:
            raise AssertionError(f"{t.label}: hooks: outputs are {out.dtype}, not {dtype.__name__}")


def precision(t: Trial, far: int = FAR) -> None:
    """At position 1e6, float32 stays within 1e-4 of float64, or both refuse it by NaN.

    Args:
      far: the position. For an encoding that gives float32 positions to others, which are no finer
        than 1/16 at 1e6, take 1000.
    """
    x_BTD = np.stack([tokens_of(t.dims, seed) for seed in (51, 52, 53, 54)])

    def run():
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), values)
        at = where(t, [[1] * TIME], shift=far)
        return np.asarray(outputs(t, jnp.asarray(x_BTD, float), at, params, causal=not t.axes))

    values = jax.tree.map(np.asarray, t.params)
    single = run()
    with jax.enable_x64(True):
        double = run()
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    refused = np.isnan(single) & np.isnan(double)
    single, double = (np.where(refused, 0, x) for x in (single, double))
    bound = 1e-4 * max(1.0, float(np.nanmax(np.abs(double))))
    same(t, f"precision: float32 and float64 at position {far}", single, double, bound, OUT)


def parity(t: Trial, definition: Definition, far: int = 0) -> None:
    """The encoding equals its definition in float64.

    Args:
      definition: (params, q_THC, k_THC, pos_T) -> the logits [H, T, T] in NumPy, with 1/sqrt(C) and
        without a mask; pos_T are the layout's positions, and params are those of one layer. If the
        encoding acts at the input: (params, x_TD, pos_T) -> x_TD.
      far: 0: at positions from 0, in float64, to 1e-9. Otherwise from this one, in float32, to 1e-4
        of the largest logit.

    The control: logits with noise of 1e-6.
    """
    rng = np.random.default_rng(61)
    with jax.enable_x64(not far):
        as_float = lambda tree: jax.tree.map(lambda leaf: jnp.asarray(leaf, float), tree)
        at, params = where(t, [[1] * TIME], shift=far), as_float(t.params)
        plain = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, at.pos_BT[0]))
        causal = not t.axes
        what = f"parity: with its definition, positions from {far}"
        if t.encoding.embed is not None:
            x_TD = rng.normal(size=(TIME, t.dims.model)).astype(np.float32)
            view = frame(t.encoding, params, at, t.dims, causal=causal)
            got = np.asarray(view.embed(jnp.asarray(x_TD[None], float))[0])
            wanted = definition(plain[0], x_TD.astype(float), plain[1])
            _close(t, what, got, wanted, far, "token channel")
            return
        q, k = rng.normal(size=(2, TIME, t.dims.heads, t.dims.head)).astype(np.float32)
        view = frame(t.encoding, params, at, t.dims, causal=causal, form="dense")
        for n in t.layers:
            q_BTHC, k_BTHC = (jnp.asarray(x[None], float) for x in (q, k))
            x_BTD = (
                q_BTHC.reshape(1, TIME, -1) if t.dims.model == t.dims.heads * t.dims.head else None
            )
            got = np.asarray(attention_logits(q_BTHC, k_BTHC, view.layer(n, x_BTD))[0])
            _, params_of_layer = at_layer(t.encoding, n, plain[0])
            wanted = definition(params_of_layer, q.astype(float), k.astype(float), plain[1])
            if causal:
                got, wanted = (np.where(np.tri(TIME, dtype=bool), s, 0) for s in (got, wanted))
            _close(t, f"{what}, layer {n}", got, wanted, far, "head query key")
            noisy = wanted + 1e-6 * rng.normal(size=wanted.shape)
            if not far:
                _control(t, what, got, noisy, 1e-9)


def _close(t: Trial, what: str, got: Any, wanted: Any, far: int, axes: str) -> None:
    most = max(1.0, float(np.abs(wanted).max()))
    same(t, what, got, wanted, 1e-4 * most if far else 1e-9 * most, axes)


def every_option(name: str, others: Mapping[str, Any] | None = None, **options: Any) -> None:
    """Every option of a registered method changes the output: near, far out, or in training.

    Args:
      others: the value to try of an option; by default each other choice, or about double.
      options: the values of options that are not the default.

    AssertionError: an option that changes nothing, or whose other values nobody knows.
    """
    for option, parameter in card(name).options.items():
        value = options.get(option, parameter.default)
        tries = [others[option]] if others and option in others else other_values(parameter, value)
        if not tries:
            raise AssertionError(f"{name}: options: {option}: say what to try in `others`")
        for other in tries:
            one_option(name, option, other, **options)


def one_option(name: str, option: str, other: Any, **options: Any) -> None:
    """Another value of an option of a registered method changes the output. AssertionError: not."""
    before, after = trial(name, **options), trial(name, **{**options, option: other})
    pairs = [(np.nan_to_num(x), np.nan_to_num(y)) for x, y in
             zip(_seen(before), _seen(after), strict=True)]  # fmt: skip
    if not max(_differences(*pair).max() for pair in pairs) > SAME:
        raise AssertionError(f"{name}: options: {option}={other!r} changes no output")


def _seen(t: Trial) -> list[np.ndarray]:
    """Outputs near, of two documents, far out, and in training where positions may be random."""
    text = tokens_of(t.dims, 20)
    near, far = (text, row(t, PACKED)), (text, row(t, stretch=10_000))
    outputs_seen = [*_rows(t, near=near, far=far).values()]
    if t.encoding.place is not None:
        at = where(t, [[1] * TIME] * ROWS)
        placed = place(t.encoding, jax.random.key(1), at)
        x_BTD = jnp.asarray(np.stack([text] * ROWS))
        outputs_seen.append(np.asarray(outputs(t, x_BTD, at, placed=placed)))
    return outputs_seen


def other_values(option: inspect.Parameter, value: Any) -> list[Any]:
    """Other values of an option to try: each other choice, or about double; [] if none is known."""
    if get_origin(option.annotation) is Literal:
        return [choice for choice in get_args(option.annotation) if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value * 2 if value else 1]
    return []


def transforms(t: Trial) -> None:
    """`jax.jit`, `jax.vmap` over parameters and inputs, and `jax.grad` inside of them agree."""
    at = _uncounted(where(t, [RIGHT] * 2))
    x_SBTD = jnp.asarray(
        np.stack([[tokens_of(t.dims, s), tokens_of(t.dims, s + 1)] for s in (71, 73)])
    )
    seeds = [t.params, random_params(t.encoding, t.dims, 1)]
    params = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *seeds)
    weight = jnp.asarray(np.random.default_rng(75).normal(size=TIME).astype(np.float32))

    def loss(params, x):
        out = outputs(t, x, at, params)
        return (out * weight[None, None, :, None, None]).sum(), out

    both = jax.value_and_grad(loss, has_aux=True, argnums=1)
    try:
        (_, out), grads = jax.jit(jax.vmap(both))(params, x_SBTD)
    except Exception as error:
        line = str(error).strip().splitlines()[0]
        raise AssertionError(f"{t.label}: transforms: jit(vmap(grad(f))): {line}") from error
    for s in range(2):
        (_, wanted), wanted_grads = both(seeds[s], x_SBTD[s])
        what = "transforms: jit(vmap(f)) and f"
        same(t, what, out[s], wanted, SAME, OUT)
        what = f"{what}, gradient of x"
        same(t, what, grads[s], wanted_grads, SAME_GRADIENT, "row token channel")


def meshes(t: Trial) -> None:
    """Data parallel on all devices there are, on Explicit and on Auto axes, equals one device.

    With one device there is nothing to compare.
    """
    devices = jax.device_count()
    if devices == 1:
        return
    at = _uncounted(where(t, [RIGHT, LEFT] * devices))
    x_BTD = jnp.asarray(np.stack([tokens_of(t.dims, seed) for seed in range(2 * devices)]))
    run = lambda params, x, at: outputs(t, x, at, params)
    loss = lambda params, x, at: (run(params, x, at) ** 2).sum()
    both = jax.jit(lambda *args: (run(*args), jax.grad(loss, argnums=(0, 1))(*args)))
    out, grads = both(t.params, x_BTD, at)
    for kind in (jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto):
        mesh = jax.make_mesh((devices,), ("data",), axis_types=(kind,))
        split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        args = jax.device_put((t.params, x_BTD, at), (whole, split, split))
        try:
            got, got_grads = both(*args)
        except Exception as error:
            line = str(error).strip().splitlines()[0]
            raise AssertionError(f"{t.label}: meshes: {devices} devices, {kind}: {line}") from error
        what = f"meshes: {devices} devices ({kind}) and one"
        same(t, what, got, out, SAME, OUT)
        leaves = zip(jax.tree.leaves(got_grads), jax.tree.leaves(grads), strict=True)
        for leaf, wanted in leaves:
            bound = SAME_GRADIENT * max(1.0, float(jnp.abs(wanted).max()))
            same(t, f"{what}, gradients", leaf, wanted, bound, "row token channel")


PROPERTIES = (
    hooks, causality, padding, padding_side, positions, storage, packing, shift, order, forms,
    cross, decoding, relative, transforms, meshes,
)  # fmt: skip


def check(
    encoding: Encoding | str,
    definition: Definition | None = None,
    *,
    dims: Dims = DIMS,
    seed: int = 0,
    axes: int | None = None,
    shift_invariant: bool | None = None,
    tells_order: bool | None = None,
    far: int = FAR,
    others: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[str, ...]:
    """Runs every check of this module on an encoding; half a minute to a minute on a CPU.

    It prints nothing, and returns the names of the checks, all of which passed: functions of this
    module, such as "causality".

    Args:
      encoding, dims, seed, axes, shift_invariant, tells_order, options: see `trial`.
      definition: its formula in NumPy, see `parity`.
      far: see `precision`.
      others: see `every_option`, which a registered method is held to.

    AssertionError: the first property that does not hold, in one line.
    FieldError: no such method or option.
    """
    t = trial(
        encoding, dims=dims, seed=seed, axes=axes, shift_invariant=shift_invariant,
        tells_order=tells_order, **options,
    )  # fmt: skip
    passed = [holds.__name__ for holds in PROPERTIES]
    for holds in PROPERTIES:
        holds(t)
    precision(t, far)
    passed.append("precision")
    if definition is not None:
        parity(t, definition)
        parity(t, definition, far)
        passed.append("parity")
    if isinstance(encoding, str) and encoding in CATALOG:
        every_option(encoding, others, **options)
        passed.append("every_option")
    return tuple(passed)

"""The encoder-decoder: causality, padding, packing, its forms, and positions on both sides."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import make
from posenc_jax.backends.target import compile_for
from posenc_jax.lab.config.schema import MaskConfig, ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Encodings
from posenc_jax.lab.tasks.task import Pair
from posenc_jax.layout import full, layout
from tests.support.catalogue import VOCAB, gap, stir, tokens

BATCH, SOURCE, TARGET = 4, 9, 12  # rows, and tokens on either side
CONFIG = ModelConfig(kind="encoder_decoder", width=16, heads=2, layers=1, mlp=2)
# Encodings of the encoder, of the decoder, and of cross-attention.
NAMES = ("nope nope nope", "sinusoidal sinusoidal nope", "rope rope rope", "t5 t5 t5",
         "alibi alibi nope", "rope alibi t5")  # fmt: skip


@functools.cache
def model(names: str = "rope rope rope", seed: int = 0, **changes):
    config = CONFIG.model_copy(update=changes)
    built = transformer.build(config, Encodings(*map(make, names.split())), VOCAB)
    params = built.init(jax.random.key(seed))
    for side, name in (
        ("encoder", "encoding"),
        ("decoder", "encoding"),
        ("decoder", "cross_encoding"),
    ):
        side_params = {**params[side], name: stir(params[side][name], seed)}
        params = {**params, side: side_params}
    return built._replace(
        apply=jax.jit(built.apply, static_argnames=("form", "block", "remat"))
    ), params


def pair(seed: int, batch: int = BATCH) -> Pair:
    return Pair(tokens(seed, batch, SOURCE), tokens(seed + 100, batch, TARGET))


def whole(batch: int = BATCH) -> Pair:
    return Pair(full(batch, SOURCE), full(batch, TARGET))


@pytest.mark.thorough
@pytest.mark.parametrize("names", NAMES)
def test_causal(names):
    """A later target token changes no earlier output, to the bit; a later source token does."""
    m, params = model(names)
    ids, at = pair(1), whole()
    late = ids._replace(target=ids.target.at[:, 8:].set(tokens(2, BATCH)[:, 8:TARGET]))
    before, after = m.apply(params, ids, at), m.apply(params, late, at)
    assert gap(before[:, :8], after[:, :8]) == 0.0
    assert gap(before[:, 8:], after[:, 8:]) > 1e-3, "control"
    other = ids._replace(source=ids.source.at[:, -1].set((ids.source[:, -1] + 1) % VOCAB))
    assert gap(before[:, :1], m.apply(params, other, at)[:, :1]) > 1e-4, "control: the encoder"


@pytest.mark.thorough
def test_a_token_outside_the_vocabulary_gives_nan():
    m, params = model()
    ids, at = pair(1), whole()
    right = m.apply(params, ids, at)
    for wrong in (VOCAB, -1):
        source = ids._replace(source=ids.source.at[0, 3].set(wrong))
        target = ids._replace(target=ids.target.at[0, 3].set(wrong))
        assert jnp.isnan(m.apply(params, source, at)[0]).all()
        assert jnp.isnan(m.apply(params, target, at)[0, 3:]).all()
        assert gap(m.apply(params, target, at)[1:], right[1:]) == 0.0, "control: another row"


def sides(time: int, pads: int, left: list[bool]) -> np.ndarray:
    """Segments of a row for each entry, padded on the left or on the right."""
    right_T = (np.arange(time) < time - pads).astype(np.int32)
    return np.stack([right_T[::-1] if on else right_T for on in left])


@pytest.mark.thorough
@pytest.mark.parametrize("names", NAMES)
def test_padding(names):
    """Padding on either side of either input: its content changes nothing, to the bit, and the
    outputs are those without padding.
    """
    source, target = zip(*itertools.product([False, True], repeat=2), strict=True)
    segment = Pair(sides(SOURCE, 3, source), sides(TARGET, 4, target))
    at = Pair(*map(layout, map(jnp.asarray, segment)))
    real = segment.target > 0
    first, two = (pair(seed, batch=1) for seed in (3, 4))
    put = lambda ids, other, at: (
        jnp.tile(other, (BATCH, 1)).at[at > 0].set(jnp.tile(ids[0, : at[0].sum()], BATCH))
    )
    ids = Pair(*map(put, first, two, segment))
    noise = Pair(*map(put, first, pair(5, batch=1), segment))

    def changes(m, params):
        """The largest change by the source's padding and by the target's, in each row."""
        run = lambda *ids: np.asarray(m.apply(params, Pair(*ids), at))
        out = run(*ids)
        others = run(noise.source, ids.target), run(ids.source, noise.target)
        return np.array(
            [
                [gap(a[here], b[here]) for a, b, here in zip(out, other, real, strict=True)]
                for other in others
            ]
        )

    m, params = model(names)
    assert np.all(changes(m, params) == 0.0)
    leaky, _ = model(names, masks=MaskConfig(attention=False))
    actual = changes(leaky, params)
    assert actual[0].min() > 1e-4, "control: the source's padding leaks"
    assert actual[1][np.array(target)].min() > 1e-4, "control: the target's, where it is before"
    short = Pair(first.source[:, : SOURCE - 3], first.target[:, : TARGET - 4])
    alone = m.apply(params, short, Pair(full(1, SOURCE - 3), full(1, TARGET - 4)))[0]
    padded = np.asarray(m.apply(params, ids, at))
    assert max(gap(alone, row[at]) for row, at in zip(padded, real, strict=True)) < 1e-5


@pytest.mark.thorough
@pytest.mark.parametrize("names", NAMES)
def test_blockwise_dense_and_decoded_agree(names):
    m, params = model(names)
    left = [False, True] * 2
    segment = Pair(sides(SOURCE, 3, left), sides(TARGET, 4, left))
    ids, at = pair(6), Pair(*map(layout, map(jnp.asarray, segment)))
    dense = m.apply(params, ids, at, form="dense")
    assert gap(dense, m.apply(params, ids, at, form="blockwise", block=4)) < 1e-5

    def decoded(source):
        cache, parts = m.start(params, source, at.source, TARGET), []
        for a, b in [(0, 5), (5, 6), (6, TARGET)]:
            here = jax.tree.map(lambda leaf, a=a, b=b: leaf[:, a:b], at.target)
            logits, cache = m.decode(params, ids.target[:, a:b], here, cache)
            parts.append(logits)
        return jnp.concatenate(parts, axis=1)

    real = segment.target > 0
    difference = lambda source: gap(np.asarray(dense)[real], np.asarray(decoded(source))[real])
    assert difference(ids.source) < 1e-5
    assert difference(pair(7).source) > 1e-3, "control: the cache of another source"


@pytest.mark.thorough
@pytest.mark.parametrize("names", NAMES)
def test_packed_pairs(names):
    """Each pair is as if alone, and a change of one leaves the other, to the bit."""
    m, params = model(names)
    ids, other = pair(8), pair(9)
    segments = Pair(jnp.array([[1] * 4 + [2] * 5] * BATCH), jnp.array([[1] * 5 + [2] * 7] * BATCH))
    at = Pair(*map(layout, segments))
    out = m.apply(params, ids, at)
    first = Pair(*(jnp.where(s == 1, b, a) for s, a, b in zip(segments, ids, other, strict=True)))
    assert gap(out[:, 5:], m.apply(params, first, at)[:, 5:]) == 0.0
    assert gap(out[:, :5], m.apply(params, first, at)[:, :5]) > 1e-3, "control"
    second = Pair(ids.source[:, 4:], ids.target[:, 5:])
    assert gap(out[:, 5:], m.apply(params, second, Pair(full(BATCH, 5), full(BATCH, 7)))) < 1e-5
    crossed = at._replace(source=layout(3 - segments.source))
    assert gap(out[:, 5:], m.apply(params, ids, crossed)[:, 5:]) > 1e-3, "control: the other source"


@pytest.mark.thorough
def test_cross_attention_reads_offsets_between_the_sides():
    """Rotary and T5's bias there see how far the sides are moved apart, not how far together."""
    ids, at = pair(10), whole()
    moved = lambda side: side.replace(pos_BT=side.pos_BT + 7)
    both, one = Pair(*map(moved, at)), at._replace(source=moved(at.source))
    for cross, sees in {"rope": True, "t5": True, "nope": False}.items():
        m, params = model(f"rope rope {cross}")
        still = m.apply(params, ids, at)
        assert gap(still, m.apply(params, ids, both)) < 2e-5
        assert (gap(still, m.apply(params, ids, one)) > 1e-3) == sees


@pytest.mark.thorough
def test_every_encoding_matters():
    """One that is left out changes the outputs of the same weights."""
    ids, at = pair(11), whole()
    m, params = model("rope rope rope")
    out = m.apply(params, ids, at)
    for place in range(3):
        names = ["rope"] * 3
        names[place] = "nope"
        other, _ = model(" ".join(names))
        assert gap(out, other.apply(params, ids, at)) > 1e-3, names


@pytest.mark.thorough
def test_drawn_positions_are_of_each_side():
    encodings = Encodings(*[make("randomized+rope", limit=64)] * 3)
    m = transformer.build(CONFIG, encodings, VOCAB)
    params, ids, at = m.init(jax.random.key(0)), pair(12), whole()
    drawn = [m.place(jax.random.key(seed), at) for seed in (0, 0, 1)]
    same, again, other = (m.apply(params, ids, at, placed) for placed in drawn)
    assert gap(same, again) == 0.0
    assert gap(same, other) > 1e-3
    encoder, decoder, cross = drawn[0]
    widths = [jax.tree.leaves(placed)[0].shape[1] for placed in (encoder, decoder, *cross)]
    assert widths == [SOURCE, TARGET, TARGET, SOURCE]


@pytest.mark.thorough
def test_layers_in_one_program_and_with_less_memory():
    """Scanned on accelerators, or with `remat`: the same gradient, which reaches every matrix."""
    m, params = model("rope fire t5", layers=2, kv_heads=1, sinks=True)
    ids, at = pair(13), whole()

    def gradient(params, **options):
        loss = lambda params: jnp.square(m.apply(params, ids, at, **options)).mean()
        return jax.jit(jax.grad(loss))(params)

    wanted, less = gradient(params), gradient(params, remat="nothing")
    with compile_for("tpu"):
        assert "scan[" in str(jax.make_jaxpr(lambda params: m.apply(params, ids, at))(params))
        scanned = gradient(params)
    for actual in (less, scanned):
        assert gap(actual, wanted) < 1e-5
    matrices = [g for g in jax.tree.leaves(wanted) if g.ndim > 1]
    assert min(float(jnp.abs(g).max()) for g in matrices) > 0.0


@pytest.mark.thorough
def test_an_encoder_of_vectors():
    """The source may be vectors, such as patches of an image."""
    m = transformer.build(CONFIG, Encodings(make("rope"), make("rope")), VOCAB, features=5)
    params, at = m.init(jax.random.key(0)), whole()
    patches = jax.random.normal(jax.random.key(1), (BATCH, SOURCE, 5))
    ids = Pair(patches, pair(14).target)
    out = m.apply(params, ids, at)
    assert out.shape == (BATCH, TARGET, VOCAB)
    assert gap(out, m.apply(params, ids._replace(source=-patches), at)) > 1e-3


@pytest.mark.parametrize(
    ("kind", "encodings", "message"),
    [
        (
            "encoder_decoder",
            make("rope"),
            r"^encoding: Encoding; .* 'encoder_decoder' takes Encodings\(",
        ),
        (
            "decoder",
            Encodings(make("rope"), make("rope")),
            r"^encoding: Encodings; .* 'decoder' takes one Encoding$",
        ),
        (
            "encoder_decoder",
            Encodings(make("rope"), make("rope"), make("sinusoidal")),
            r"^cross: this encoding acts at the input of a model, not in attention$",
        ),
    ],
)
def test_encodings_of_another_kind_are_refused(kind, encodings, message):
    with pytest.raises(ValueError, match=message):
        transformer.build(CONFIG.model_copy(update={"kind": kind}), encodings, VOCAB)

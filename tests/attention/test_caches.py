"""Caches whose rows are filled up to columns of their own; the code of docs/caches.md."""

import re
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import CATALOG, Dims, at_layer, attend, frame, full, layout, make, masks
from tests.support import ROOT
from tests.support.catalogue import encoding_of, gap, stir

DIMS = Dims(16, 2, 8, 2)
CAPACITY, NEW = 10, 2
FILLED = np.array([3, 8, 0])  # tokens of each row before the new ones
METHODS = ["rope", "alibi", "ssmax", "sinusoidal", "repo", "fox+alibi", "stick_breaking", "dape_v2"]


def drawn(heads=1):
    rng = np.random.default_rng(0)
    shapes = [(3, CAPACITY, 16), *[(3, CAPACITY, n, 8) for n in (2, heads, heads)]]
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def rows_of(name: str, form: Any = "dense", at=None):
    """(attention of the new tokens of rows that begin at start_B, that of all tokens of all)."""
    encoding, (x, q, k, v) = make(name), drawn()
    params = stir(encoding.init(jax.random.key(0), DIMS), zlib.crc32(name.encode()))
    every = frame(encoding, params, full(3, CAPACITY), DIMS, form="dense")
    whole_x = every.embed(x)

    def new(start, filled_B):
        held = layout(np.arange(CAPACITY) < filled_B[:, None] + NEW) if at is None else at
        view = frame(encoding, params, held, DIMS, queries=(start, NEW), form=form, block=4)
        rows, columns = np.arange(3)[:, None], filled_B[:, None] + np.arange(NEW)
        view.embed(x[rows, columns])
        layer = view.layer(1, whole_x[rows, columns], whole_x)
        return attend(q[rows, columns], k, v, layer)

    return new, lambda: attend(q, k, v, every.layer(1, whole_x))


@pytest.mark.thorough
@pytest.mark.parametrize("name", METHODS)
def test_rows_may_begin_at_columns_of_their_own(name):
    columns = FILLED[:, None] + np.arange(NEW)
    for form in ["dense", *(["blockwise"] if name != "dape_v2" else [])]:
        new, whole = rows_of(name, form)
        run = jax.jit(lambda start, new=new: new(start, FILLED))
        wanted = np.asarray(whole())[np.arange(3)[:, None], columns]
        assert gap(run(FILLED), wanted) < 1e-5
        assert gap(new(FILLED, FILLED), wanted) < 1e-5, "known when tracing"
        assert gap(run(FILLED - np.array([1, 1, 0]))[2], wanted[2]) < 1e-5
        assert gap(run(FILLED - np.array([1, 1, 0]))[:2], wanted[:2]) > 1e-3, (
            "control: other columns"
        )
        outside = np.asarray(run(FILLED + np.array([0, 1, -1])))
        assert np.isnan(outside[1:]).all(), "past the end, and before the beginning"
        assert gap(outside[0], wanted[0]) < 1e-5, "a row within is right beside them"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rope", "alibi", "t5"])
def test_kernels_take_rows_that_begin_at_columns_of_their_own(name):
    new, whole = rows_of(name, "kernel")
    wanted = np.asarray(whole())[np.arange(3)[:, None], FILLED[:, None] + np.arange(NEW)]
    assert gap(new(FILLED, FILLED), wanted) < 1e-5


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rope", "alibi", "fox"])
def test_one_layout_may_be_of_all_rows(name):
    """What differs is the start alone: all rows of the cache are full."""
    for form in ("dense", "blockwise"):
        new, whole = rows_of(name, form, full(1, CAPACITY))
        wanted = np.asarray(whole())[np.arange(3)[:, None], FILLED[:, None] + np.arange(NEW)]
        assert gap(new(FILLED, FILLED), wanted) < 1e-5


@pytest.mark.parametrize(
    ("start", "line"),
    [
        (FILLED + 1, "queries: columns 9 to 9 + 2 of 10 tokens"),
        (jnp.asarray(FILLED - 1), "queries: columns -1 to -1 + 2 of 10 tokens"),
        (FILLED[:2], "queries: start: shape (2,); give one number, or one a row, [3]"),
        (FILLED[:, None], "queries: start: shape (3, 1); give one number, or one a row, [3]"),
        (FILLED + 0.0, "queries: start: dtype float64; give whole numbers"),
        (FILLED > 0, "queries: start: dtype bool; give whole numbers"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_in_one_line(start, line):
    with pytest.raises(ValueError, match="queries") as refusal:
        frame(make("rope"), {}, full(3, CAPACITY), DIMS, queries=(start, NEW))
    assert str(refusal.value) == line


# docs/caches.md: its code, against attention to all tokens at once.

PAGE = (ROOT / "docs" / "caches.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TOKENS = 20  # more than the page's capacity of 16


@pytest.fixture(scope="module")
def page():
    """What the page's code defines, with random parameters in place of zeros."""
    scope: dict[str, Any] = {}
    for block in BLOCKS:
        exec(block, scope)
    for name in ("params", "rolling_params"):
        scope[name] = stir(scope[name], 1)
    # Gates that forget little, so that the oldest tokens are seen in what comes out.
    scope["rolling_params"] = jax.tree.map(
        lambda leaf: leaf + 4 if leaf.ndim == 1 else leaf, scope["rolling_params"]
    )
    return scope


@pytest.fixture(scope="module")
def tokens():
    """(x, q, k, v) of two rows."""
    rng = np.random.default_rng(0)
    shapes = [(2, TOKENS, 32), *[(2, TOKENS, 4, 8)] * 3]
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def at_once(page, tokens, encoding, params, time=TOKENS, **options):
    x, q, k, v = (a[:, :time] for a in tokens)
    view = frame(encoding, params, full(*x.shape[:2]), page["dims"], form="dense")
    return attend(q, k, v, view.layer(0, x), **options)


def test_a_cache_gives_what_one_pass_gives(page, tokens):
    wanted = at_once(page, tokens, page["encoding"], page["params"], 16)
    cache, actual, filled = page["empty"], [], 0
    for new in (5, 1, 1, 7, 2):
        qkv = [a[:, filled : filled + new] for a in tokens[1:]]
        out, cache = page["step"](cache, filled, *qkv)
        actual.append(out)
        filled += new
    assert gap(jnp.concatenate(actual, axis=1), wanted) < 1e-5
    assert gap(actual[0], wanted[:, 1:6]) > 1e-2, "control: other tokens"
    assert np.isnan(page["step"](cache, 16, *qkv)[0]).all()
    with pytest.raises(ValueError, match="queries") as refusal:
        frame(page["encoding"], page["params"], full(2, 16), page["dims"], queries=(15, 2))
    assert f"`{refusal.value}`" in PAGE


@pytest.mark.thorough
def test_rows_of_the_page_go_on_from_their_own_columns(page, tokens):
    wanted = at_once(page, tokens, page["encoding"], page["params"], 16)
    length_B = np.array([6, 3])
    prompts = [a[:, :6] for a in tokens[1:]]  # of the second row 3 tokens are padding
    out, cache = page["step_rows"](page["empty"], np.zeros(2, int), *prompts)
    assert gap(out[0], wanted[0, :6]) < 1e-5
    assert gap(out[1, :3], wanted[1, :3]) < 1e-5
    for n in range(11):
        rows, columns = np.arange(2)[:, None], length_B[:, None] + n
        qkv = [a[rows, columns] for a in tokens[1:]]
        out, cache = page["step_rows"](cache, length_B + n, *qkv)
        assert gap(out[1], wanted[1, columns[1]]) < 1e-5
        if n < 10:
            assert gap(out[0], wanted[0, columns[0]]) < 1e-5
            assert gap(out[0], wanted[0, columns[0] - 1]) > 1e-2, "control: another token"
    assert np.isnan(out[0]).all(), "the row past the capacity"


@pytest.mark.thorough
def test_turned_keys_of_the_page(page, tokens):
    wanted = at_once(page, tokens, page["rope"], {}, 12)
    cache, actual = page["empty"], []
    for start, new in ((0, 8), (8, 1), (9, 3)):
        qkv = [a[:, start : start + new] for a in tokens[1:]]
        out, cache = page["step_turned"](cache, start, *qkv)
        actual.append(out)
    assert gap(jnp.concatenate(actual, axis=1), wanted) < 1e-5


@pytest.mark.thorough
def test_the_rolling_cache_of_the_page_is_a_window(page, tokens):
    rolling = page["rolling"], page["rolling_params"]
    n = np.arange(TOKENS)
    window = jnp.asarray(n[:, None] - n < 16)[None, None]
    wanted = at_once(page, tokens, *rolling, mask_BHQK=window)
    cache, actual = page["empty_rolling"], []
    for filled in range(TOKENS):
        new_token = [a[:, filled : filled + 1] for a in tokens]
        out, cache = page["step_rolling"](cache, filled, *new_token)
        actual.append(out)
    actual = jnp.concatenate(actual, axis=1)
    assert gap(actual, wanted) < 1e-5
    assert gap(actual, at_once(page, tokens, *rolling)) > 1e-3, "control: without a window"


def test_the_page_names_the_methods_that_read_a_layer_s_input():
    sentence = re.search(r"Methods that need it[^:]*:(.*?)\. ", PAGE, re.DOTALL)
    assert sentence is not None
    dims, actual = Dims(32, 4, 8, 2), set()
    for name in CATALOG:
        encoding = encoding_of(name)

        def look(key, name=name, encoding=encoding):
            params = encoding.init(key, dims)
            of_layers = [at_layer(encoding, n, params)[0] for n in range(2)]
            if any(one.locate or (one.walk and one.walk.prepare) for one in of_layers):
                actual.add(name)

        jax.eval_shape(look, jax.random.key(0))
    assert set(re.findall(r"`(\w+)`", sentence[1])) == actual


@pytest.mark.thorough
def test_drafts_of_the_page(page, tokens):
    """Each draft as if its path stood behind the tokens; then the accepted ones alone."""
    parents, filled = [-1, 0, 0, 1], 5
    draft_tokens = [a[:, :9] for a in tokens[1:]]
    _, cache = page["step"](page["empty"], 0, *(a[:, :5] for a in draft_tokens))
    out, cache = page["check_drafts"](cache, filled, *(a[:, 5:] for a in draft_tokens))
    for n in range(4):
        path, draft = [], n
        while draft >= 0:
            path, draft = [filled + draft, *path], parents[draft]
        columns = [*range(filled), *path]
        later = [0] * (9 - len(columns))  # that no token before them sees
        chosen = [a[:, np.array(columns + later)] for a in tokens]
        alone = at_once(page, chosen, page["encoding"], page["params"])
        assert gap(out[:, n], alone[:, len(columns) - 1]) < 1e-5
    other, _ = page["step"](cache, filled, *(a[:, 5:] for a in draft_tokens))
    assert gap(out, other) > 1e-2, "control: without the tree"
    # Drafts 0, 1 and 3 are accepted; the next token stands in column 9.
    held = np.arange(16) < 10
    held[7] = False
    view = frame(page["encoding"], page["params"], layout(held[None]), page["dims"], queries=(9, 1))
    cache = page["write"](cache, {"k": tokens[2][:, 9:10], "v": tokens[3][:, 9:10]}, 9)
    out = attend(tokens[1][:, 9:10], cache["k"], cache["v"], view.layer(0))
    chosen = [a[:, np.array([0, 1, 2, 3, 4, 5, 6, 8, 9])] for a in tokens]
    assert gap(out, at_once(page, chosen, page["encoding"], page["params"])[:, -1:]) < 1e-5


@pytest.mark.thorough
def test_a_prefix_in_a_cache(page, tokens):
    q, k, v = (a[:, :8] for a in tokens[1:])
    at, method = full(2, 8), (page["encoding"], page["params"])
    view = frame(*method, masks.prefix(at, 5), page["dims"], form="dense")
    wanted = attend(q, k, v, view.layer(0))
    held = masks.prefix(layout(np.arange(16)[None] < 8), 5)
    view = frame(*method, held, page["dims"], queries=(5, 3))
    wide = lambda a: jnp.pad(a, [(0, 0), (0, 8), (0, 0), (0, 0)])
    assert gap(attend(q[:, 5:], wide(k), wide(v), view.layer(0)), wanted[:, 5:]) < 1e-5

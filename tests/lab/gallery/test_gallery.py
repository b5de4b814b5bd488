"""The gallery: what its cards show is what the methods do, and its page opens by itself."""

import math
import re
import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from posenc_jax import CATALOG, Dims, attend, frame, make
from posenc_jax.attention import logits
from posenc_jax.encodings import card
from posenc_jax.lab.gallery import cards, explorer, measure, option_grid, page, store, trained
from posenc_jax.lab.gallery.costs import Cost
from posenc_jax.layout import full
from scripts.catalogue import main


@pytest.fixture
def small(monkeypatch):
    """Cards of few tokens, and parameters as they are drawn."""
    untrained = lambda name, dims, options: measure.drawn(make(name, **options), dims)
    monkeypatch.setattr(trained, "parameters", untrained)
    for setting, value in {"SPAN": 12, "SPAN_2D": 4, "LENGTHS": (8, 16), "TRAINED": 8, "SIDE": 4,
                           "DRAWS": 2, "LAYERS": 4, "WINDOW": 4}.items():  # fmt: skip
        monkeypatch.setattr(measure, setting, value)
    sizes = {"SPAN": 12, "LENGTHS": (8, 16), "TRAINED": 8, "SIDE": 4, "FAR": 400, "REACH": 6}
    for setting, value in sizes.items():
        monkeypatch.setattr(cards, setting, value)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rope", "t5", "shaw"])
def test_logits_are_what_softmax_reads(name):
    dims = Dims(32, 4, 8)
    encoding = make(name)
    params = encoding.init(jax.random.key(0), dims)
    layer = frame(encoding, params, full(1, 7), dims, form="dense").layer(0)
    q, k, v = jax.random.normal(jax.random.key(1), (3, 1, 7, 4, 8))
    s_HQK = logits(q, k, layer)[0]
    assert (jnp.isneginf(s_HQK) == jnp.triu(jnp.ones((7, 7), bool), 1)[None]).all()
    wanted = jnp.einsum("hqk,khc->qhc", jax.nn.softmax(s_HQK), v[0])
    np.testing.assert_allclose(attend(q, k, v, layer)[0], wanted, atol=1e-5)
    with pytest.raises(ValueError, match="'blockwise' never holds all logits"):
        logits(q, k, frame(make("nope"), {}, full(1, 7), dims, form="blockwise").layer(0))


def test_expected_scores_of_rope_are_its_sum_of_cosines(small):
    band = measure.kernel("rope")
    theta_F = 10_000.0 ** (-2 * np.arange(32) / 64)
    wanted_N = 2 * np.cos(np.arange(12)[:, None] * theta_F).sum(axis=1) / math.sqrt(64)
    np.testing.assert_allclose(band.mean, np.tile(wanted_N, (4, 1)), atol=1e-4)
    assert (band.high - band.low).max() < cards.LEAST


def test_spread_is_over_absolute_positions(small):
    """The control of the spread above: a code that is not relative has one."""
    band = measure.kernel("index")
    assert (band.high - band.low).max() > 1
    assert (band.low <= band.mean).all()
    assert (band.mean <= band.high).all()


@pytest.mark.thorough
def test_what_is_learned_is_drawn_after_training(monkeypatch):
    monkeypatch.setattr(trained, "STEPS", 40)
    monkeypatch.setattr(trained, "TRAIN", trained.TRAIN.model_copy(update={"chunk": 20}))
    trained._learned.cache_clear()
    dims = Dims(256, 4, 64)
    t5 = trained.parameters("t5", dims, {})
    assert trained.parameters("t5", dims, {}) is t5
    first = make("t5").init(jax.random.key(0), dims)
    moved = [jnp.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (t5, first)), strict=True)]
    assert max(moved) > 0.02
    assert jax.tree.map(jnp.shape, t5) == jax.tree.map(jnp.shape, first)
    assert trained.parameters("alibi", dims, {}) == {}, "control: nothing to learn"
    trained._learned.cache_clear()


def test_waves_shorter_than_a_pixel_do_not_come_back_as_long_ones():
    t = np.arange(40_000)
    short_T1 = np.sin(2 * np.pi * t / 99.5)[:, None]
    mean, low, high = measure.pixels(short_T1, 400)
    assert np.abs(mean).max() < 0.02
    assert (high - low).min() > 1.9
    sampled = short_T1[::100]  # the control: one position a pixel shows a wave of 200 pixels
    assert np.abs(np.fft.rfft(sampled[:, 0]))[2] > 0.9 * len(sampled) / 2


@pytest.mark.thorough
def test_past_the_range_is_what_the_policy_says(small):
    clamp, error = (measure.past("learned", policy) for policy in ("clamp", "error"))
    assert np.ptp(clamp[16][:8]) < 1e-4
    assert np.ptp(clamp[8][:8]) > 1e-2, "control: within the range positions differ"
    assert np.isfinite(error[8]).all()
    assert np.isnan(error[16]).all()


def test_codes_are_drawn_before_they_are_projected():
    bits = measure.table("binary", 50, 8)
    np.testing.assert_array_equal(bits[:, :3] @ [1, 2, 4], np.arange(8))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["randomized", "irope", "fire", "swin_2d", "mrope", "fox", "circle_rope"]
)
def test_every_kind_has_a_card(name, small):
    drawn = cards.panels(name)
    assert drawn
    figure = cards.figure(drawn)
    assert len(figure.axes) >= len(drawn)
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]
    assert {panel.title for panel in drawn} <= set(titles)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "title", "below"),
    [
        ("rope", "Longer sequences", "the last token's expected score"),
        ("randomized", "Longer sequences", "the last token's expected score, with rope"),
        ("fox", "Longer sequences", "what position adds at the last token"),
        ("tupe", "Beyond: error", "what position adds at the last token; refused: 16"),
    ],
)
def test_the_last_panel_says_what_it_draws(name, title, below, small):
    assert cards.panels(name)[-1][:2] == (title, below)


@pytest.mark.thorough
def test_the_page_of_cards_opens_by_itself(small):
    drawn = {n: page.figure(n, cards.svg(n, cards.panels(n))) for n in ("learned", "alibi")}
    text = page.html(drawn)
    loads = re.compile(r'<link |src="(?!data:)|<(?:image|use)[^>]* (?:xlink:)?href="(?!#|data:)')
    assert not loads.search(text), "the page must need nothing else"
    assert loads.search(text.replace("data:image", "other.png")), "control"
    assert '<a href="https://arxiv.org/abs/2108.12409">arXiv 2108.12409</a>' in text
    assert '<a href="../explorer.html#alibi">' in text
    assert "<code>beyond</code>" in text
    assert "`" not in text
    assert text.index('id="alibi"') < text.index('id="learned"'), "in the order of the families"
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 2
    assert all(len(ET.fromstring(svg)) for svg in drawings), "each must be XML"
    assert "stroke: var(--c0)" in text, "lines have the page's colours, for light and dark"
    assert "#0072b2; stroke-width" not in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert "length = 512" in text


def measured(name, card="<svg ></svg>"):
    return store.Measured(card, b"points", b"", (), Cost(1.0, 2.0, False), store.declared(name), "")


def test_the_archive_of_the_catalogue_holds_what_was_measured(tmp_path):
    measured_methods = {
        "rope": measured("rope"),
        "nope": measured("nope")._replace(maps=b"m", shape=(1, 2, 3)),
    }
    store.pack(tmp_path / "a.tar.xz", measured_methods)
    assert store.read_archive(tmp_path / "a.tar.xz") == {
        "nope": measured_methods["nope"],
        "rope": measured_methods["rope"],
    }


def test_the_site_measures_what_the_archive_lacks_once(tmp_path, monkeypatch):
    """A method that is new, and one whose options are others than when it was measured."""
    changed = measured("alibi")._replace(declared="{'slope': 3}")
    archived = {"rope": measured("rope"), "alibi": changed}
    store.pack(tmp_path / "a.tar.xz", archived)
    again, measured_names = measured("alibi", "<svg >new</svg>"), []
    monkeypatch.setattr(store, "CATALOG", {name: CATALOG[name] for name in ("rope", "alibi", "t5")})

    def measure_all(names):
        measured_names.extend(names)
        yield from ((n, again if n == "alibi" else measured(n)) for n in names)

    monkeypatch.setattr(store, "measure_all", measure_all)
    for _ in range(2):
        actual = store.catalogue(tmp_path / "a.tar.xz", tmp_path / "kept")
        assert list(actual) == ["rope", "alibi", "t5"]
        assert actual["alibi"] == again
        assert actual["rope"] == archived["rope"], "control: as in the archive"
        assert measured_names == ["alibi", "t5"], "the second time they are kept"


@pytest.mark.thorough
def test_a_method_is_measured_for_the_card_the_explorer_and_the_table(small, monkeypatch):
    monkeypatch.setattr(explorer, "measured", lambda name: [option_grid.card(name).name])
    monkeypatch.setattr(trained, "METHODS", ("nope",))
    actual = store.measure("alibi")
    assert actual.card.startswith("<?xml")
    assert b'"alibi"' in actual.points
    assert (actual.maps, actual.shape) == (b"", ())
    assert actual.cost.operations > 0
    assert store.measure("laplacian").points == b"", "control: it is not in the explorer"


@pytest.mark.thorough
def test_a_rotary_card_shows_angles_wavelengths_and_rope(small):
    titles = lambda name: [panel.title for panel in cards.panels(name)]
    assert titles("ntk")[:2] == ["Angle of each pair", "Wavelengths"]
    axes = Figure().subplots()
    cards.panels("ntk")[2].draw(axes)
    assert [line.get_label() for line in axes.lines[:2]] == ["rope", "ntk"]
    assert "Angle of each pair" not in titles("alibi"), "control"


@pytest.mark.thorough
def test_a_window_is_drawn_as_the_keys_that_it_hides(small):
    seen_QK = measure.seen("window")
    distance = np.subtract.outer(np.arange(len(seen_QK)), np.arange(len(seen_QK)))
    assert (seen_QK == ((distance >= 0) & (distance <= measure.WINDOW))).all()
    assert any("Keys that a query sees" in p.title for p in cards.panels("window"))
    assert not any("Keys that a query sees" in p.title for p in cards.panels("rope")), "control"


@pytest.mark.thorough
def test_every_method_takes_the_options_by_which_its_mask_is_shown():
    for name in CATALOG:
        measure.setup(name, learned=False, length=measure.TRAINED, **measure.narrow(card(name)))
    with pytest.raises(ValueError, match="must be 130 or more"):  # the control: it clips there
        measure.setup("deberta", learned=False, distance=measure.WINDOW)


def test_equal_curves_are_one_line():
    y = {n: np.arange(float(n)) for n in (4, 8, 16)}
    assert [c.label for c in cards._by_length(y)] == ["n = 4, 8, 16"]
    moved = {**y, 16: y[16] + 1}
    assert [c.label for c in cards._by_length(moved)] == ["n = 4, 8", "16"]


def test_heads_have_one_band_and_a_head_alone_has_its_own():
    x, mean = np.arange(3), np.array([[0.0, 1, 2], [2, 1, 0]])
    shade, *lines = cards._head_curves(measure.Band(x, mean, mean - 1, mean + 2))
    np.testing.assert_array_equal(shade.low, [-1, 0, -1])
    np.testing.assert_array_equal(shade.high, [4, 3, 4])
    assert np.isnan(shade.y).all()
    assert [(line.label, line.low) for line in lines] == [("head 1", None), ("2", None)]
    (alone,) = cards._head_curves(measure.Band(x, mean[:1], mean[:1] - 1, mean[:1] + 2))
    np.testing.assert_array_equal(alone.low, [-1, 0, 1])
    assert len(cards._head_curves(measure.Band(x, mean, mean, mean))) == 2, "control: no spread"


def test_page_styles_survive_as_classes():
    rules, body = page._classed('<a style="x: 1"></a><b style="y: 2"></b><i style="x: 1"></i>')
    assert rules == ".s0 { x: 1 }\n.s1 { y: 2 }\n"
    assert body == '<a class="s0"></a><b class="s1"></b><i class="s0"></i>'


@pytest.mark.thorough
def test_methods_are_measured_in_several_processes(monkeypatch):
    monkeypatch.setattr(store, "cores", lambda: [0, 1])
    monkeypatch.setattr(store, "measure", str.upper)
    assert list(store.measure_all(["rope", "alibi"])) == [("rope", "ROPE"), ("alibi", "ALIBI")]


def test_command_measures_some_methods_and_keeps_the_others(tmp_path, monkeypatch, capsys):
    archive = tmp_path / "a.tar.xz"
    store.pack(archive, {"rope": measured("rope"), "alibi": measured("alibi")})
    new = measured("alibi", "<svg >new</svg>")
    monkeypatch.setattr(store, "measure_all", lambda names: ((name, new) for name in names))
    assert main(["alibi", f"--out={archive}"]) == 0
    assert store.read_archive(archive) == {"rope": measured("rope"), "alibi": new}
    capsys.readouterr()
    assert main(["ropee", f"--out={archive}"]) == 2
    refusal = capsys.readouterr().err
    assert refusal.startswith("encoding.name: no method 'ropee'; did you mean rope")
    assert refusal.count("\n") == 1


def test_every_kind_has_a_family():
    from posenc_jax.encodings import CATALOG

    assert {card(name).kind for name in CATALOG} <= set(page.FAMILIES)

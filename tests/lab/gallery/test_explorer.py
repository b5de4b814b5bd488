"""The explorer: its numbers are the library's, and in a browser every control moves something."""

import json
import math
import struct

import numpy as np
import pytest

from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.gallery import explorer, measure, option_grid, store, trained
from posenc_jax.options import FieldError
from tests.support import ROOT
from tests.support.devtools import opened

pytestmark = pytest.mark.thorough

ARCHIVE = ROOT / "results" / "catalogue.tar.xz"
WITH_MAPS = set(trained.METHODS)
SITE = {
    name: getattr(option_grid, name)
    for name in ("KNOBS", "WIDTHS", "SPAN", "LENGTHS", "MATRIX", "LAST")
}
SMALL = {
    "KNOBS": {"base": (100.0, 10_000.0), "length": (8, 64), "factor": (2.0, 4.0),
              "beyond": ("error", "clamp")},
    "WIDTHS": (8, 16), "SPAN": 32, "LENGTHS": (8, 32), "MATRIX": 8, "LAST": 4,
}  # fmt: skip
TRAINED = {
    "METHODS": ("alibi",), "LENGTH": 8, "WINDOWS": 2,
    "MODEL": ModelConfig(width=16, heads=2, layers=2),
    "TRAIN": TrainConfig(length=8, batch=2, steps=2, warmup=1, chunk=2),
}  # fmt: skip
MOST = 8e6  # bytes of the page


SITE = {setting: getattr(option_grid, setting) for setting in SMALL}


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as patch:
        for setting, value in SMALL.items():
            patch.setattr(option_grid, setting, value)
        for setting, value in TRAINED.items():
            patch.setattr(trained, setting, value)
        yield


def frequencies(head, base):
    return base ** (-np.arange(head // 2) / (head // 2))


def test_a_point_of_rope_is_its_formula():
    point = option_grid.point("rope", 16, {"base": 100.0})
    theta_F, t = frequencies(16, 100.0), np.arange(32)
    wanted = 2 * np.cos(t[:, None] * theta_F).sum(axis=1) / 4 - 4
    np.testing.assert_allclose(point.kernel, wanted[None, None], atol=1e-4)
    assert point.rows == [0] * 4
    assert point.angle is not None
    assert point.wave is not None
    gap = point.angle[0] - np.outer(theta_F, t) / (2 * np.pi)
    np.testing.assert_allclose(gap, np.round(gap), atol=1e-5)
    np.testing.assert_allclose(point.wave[0], 2 * np.pi / theta_F, rtol=1e-4)
    assert point.matrix is None
    assert point.past is None


def test_rows_are_the_heads_that_differ_and_a_method_that_is_not_relative_has_a_matrix():
    alibi = option_grid.point("alibi", 16, {})
    assert alibi.rows == [0, 1, 2, 3]
    slopes = np.array([1 / 4, 1 / 16, 1 / 64, 1 / 256])
    np.testing.assert_allclose(alibi.kernel[:, 0], -slopes[:, None] * np.arange(32), atol=1e-4)
    learned = option_grid.point("learned", 16, {"length": 8, "beyond": "error"})
    assert learned.kernel.shape == (1, 3, 32)
    assert learned.matrix is not None
    assert learned.past is not None
    assert np.isfinite(learned.past[0, 0, :8]).all()
    assert np.isnan(learned.past[0, 1]).all(), "32 tokens are refused"
    clamped = option_grid.point("learned", 16, {"length": 8, "beyond": "clamp"}).past
    assert clamped is not None
    assert np.isfinite(clamped[0, 1]).all(), "control: this policy refuses none"


def test_layers_that_are_alike_are_measured_once():
    measured = measure.setup("irope", 16, learned=False)
    assert option_grid._first_alike(measured) == [0, 0, 0, 3, 0, 0]
    first, like, other = (option_grid._added(measured, 8, slice(4, 8), n) for n in (0, 1, 3))
    np.testing.assert_array_equal(first, like)
    assert np.nanmax(np.abs(first - other)) > 0.1, "control: layers that are not"


def test_refusals_are_kept_with_their_reason(monkeypatch):
    monkeypatch.setattr(option_grid, "KNOBS", {"length": (2, 64)})
    refused, actual = list(option_grid.points("hope"))[::2]
    assert str(refused).startswith("encoding.length: 2 tokens are less than one turn")
    assert isinstance(actual, option_grid.Point), "control"


@pytest.mark.parametrize("kind", ["u8", "u16"])
def test_codes_of_values_are_within_half_a_step(kind):
    values = np.array([-3.0, 0.1, np.nan, 5.0])
    raw, low, high = explorer.quantised(kind, values)
    codes = np.frombuffer(raw, "u1" if kind == "u8" else "<u2").astype(float)
    none = 255 if kind == "u8" else 65535
    assert codes[2] == none
    back = low + (high - low) * codes / (none - 1)
    known = [0, 1, 3]
    np.testing.assert_allclose(back[known], values[known], atol=0.5001 * 8 / (none - 1))


def test_maps_of_a_trained_model_are_causal_weights_of_the_same_text(monkeypatch):
    monkeypatch.setattr(trained, "WINDOWS", 1)
    maps = trained.maps("alibi")
    assert maps.within.shape == (2, 2, 8, 8)
    assert maps.beyond.shape == (2, 2, 8, 16)
    for weights, before in ((maps.within, 0), (maps.beyond, 8)):
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
        later = np.arange(weights.shape[-1]) > before + np.arange(8)[:, None]
        assert (weights[:, :, later] == 0).all()
    # In the first layer ALiBi's logits depend on the two tokens and their distance alone.
    again = maps.beyond[0, :, :, 8:]
    apart = np.abs(again / again.sum(axis=-1, keepdims=True) - maps.within[0]).max()
    assert apart < 1e-5
    assert np.abs(again[:, :, ::-1] - maps.within[0]).max() > 0.2, "control: other keys"


METHODS = ("rope", "ntk", "alibi", "learned")
DIGEST = """(() => { const main = document.getElementById("main");
  return main.innerHTML + [...main.querySelectorAll("canvas")].map((c) => c.toDataURL()).join();
})()"""


@pytest.fixture(scope="module")
def path(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("explorer") / "page.html"
    encoded = {name: explorer.encoded(explorer.measured(name)) for name in METHODS}
    maps = {name: explorer.encoded_maps(trained.maps(name)) for name in trained.METHODS}
    out.write_text(explorer.html(encoded, maps), "utf-8")
    return out


def settled(page, before):
    page.until(f"+document.body.dataset.drawn > {before}")


def moved(page, control: str, key: str, seconds: float = 5.0) -> bool:
    """Whether a key changes the panels within some seconds, with the control in focus."""
    page.run(f"document.getElementById({json.dumps(control)}).focus()")
    before, drawn = page.run(DIGEST), page.run("+document.body.dataset.drawn")
    page.press(key)
    try:
        page.until(f"+document.body.dataset.drawn > {drawn}", seconds)
    except AssertionError:
        return False
    return page.run(DIGEST) != before


@pytest.fixture
def page(path, tmp_path):
    with opened(f"{path.as_uri()}#{'+'.join(METHODS)}", tmp_path / "profile") as page:
        page.screen(1400, 1000)
        page.until("document.body.dataset.drawn > 0")
        yield page


@pytest.mark.browser
def test_every_control_moves_the_panels_by_keyboard(page):
    controls = page.run("[...document.querySelectorAll('.knob input, .knob select')]"
                        ".map((c) => c.id)")  # fmt: skip
    assert controls == ["row", "base", "length", "factor", "beyond", "head", "pair", "time"]
    assert page.run("[...document.querySelectorAll('.knob :disabled')].length") == 0
    keys = page.run(
        "[...document.querySelectorAll('.knob input, .knob select')].map((c) =>"
        " c.value === c.max ? 'ArrowLeft' : c.max ? 'ArrowRight' : 'ArrowDown')"
    )
    for control, key in zip(controls, keys, strict=True):
        assert moved(page, control, key), control
    time = page.run("+document.getElementById('time').value")
    assert moved(page, "play", "Space")
    page.until(f"+document.getElementById('time').value > {time + 1}")
    page.press("Space")
    page.run("document.querySelector('input[value=alibi]').id = 'box'")
    assert moved(page, "box", "Space")
    page.until("location.hash === '#rope+ntk+learned'")
    assert page.trouble == []


@pytest.mark.browser
def test_the_control_page_whose_control_moves_nothing_is_caught(page):
    page.run("document.getElementById('base').oninput = null")
    assert not moved(page, "base", "ArrowLeft", seconds=1.0)
    page.run("fetch('https://example.org/x').catch(() => 0)")
    assert page.trouble


@pytest.mark.browser
def test_all_controls_are_reached_with_the_tab_key(page):
    page.run("document.activeElement.blur()")
    reached = []
    for _ in range(30):
        page.press("Tab")
        reached.append(page.run("document.activeElement.id || document.activeElement.value"))
    for control in ("alibi", "row", "base", "length", "factor", "beyond", "head", "pair", "time",
                    "play"):  # fmt: skip
        assert control in reached, control


@pytest.mark.browser
def test_the_numbers_on_the_page_are_those_of_the_library(page):
    page.run("view.knobs = { ...view.knobs, base: 100, head: 16, factor: 4, length: 8 }")
    drawn = page.run("+document.body.dataset.drawn")
    page.run("draw()")
    settled(page, drawn)
    shown = page.run("(() => { const s = look('rope');"
                     " return { kernel: [...kernel(s).y], angle: [...s.angle.values],"
                     " wave: [...s.wave.values] }; })()")  # fmt: skip
    point = option_grid.point("rope", 16, {"base": 100.0})
    assert point.angle is not None
    assert point.wave is not None
    np.testing.assert_allclose(shown["kernel"], point.kernel[0, 0], atol=2e-4)
    gap = np.reshape(shown["angle"], point.angle[0].shape) - point.angle[0]
    assert np.abs(gap - np.round(gap)).max() < 1 / 256
    np.testing.assert_allclose(shown["wave"], point.wave[0], rtol=1e-5)
    table = page.run("document.querySelector('#numbers tbody tr').textContent")
    assert table.startswith(f"rope{0:.3f}{point.kernel[0, 0, 1]:.3f}")
    other = option_grid.point("rope", 16, {"base": 10_000.0})
    assert np.abs(np.subtract(shown["kernel"], other.kernel[0, 0])).max() > 0.1, "control"


@pytest.mark.browser
def test_a_score_far_below_the_greatest_does_not_flatten_the_others(page):
    """A curve ends at the bottom where it falls below, and so does the axis."""
    drawn = """(deep) => { const falling = Float32Array.from([0, -5, -11, -40, -60]);
      const flat = Float32Array.from([0, -1, 0, -1, 0]), lineOf = (y) => ({ y, color: "red" });
      const svg = lines([falling, flat].map(lineOf),
        { W: 400, H: 200, x: "", y: "", title: "", markX: 9, deep });
      return [...svg.querySelectorAll("path.line")].map((line) =>
        line.getAttribute("d").match(/[\\d.]+(?=[ML]|$)/g).map(Number)); }"""
    falling, flat = page.run(f"({drawn})(DEEP)")
    assert (len(falling), len(flat)) == (4, 5), "one point at the bottom, then none"
    assert max(falling) == falling[3]
    height = lambda values: max(values) - min(values)
    assert height(flat) > 0.07 * 142
    falling, flat = page.run(f"({drawn})(Infinity)")
    assert len(falling) == 5, "control: an axis with every score"
    assert height(flat) < 0.02 * 142


@pytest.mark.browser
def test_attention_in_range_and_beyond_stand_beside_their_difference(page):
    text = page.run("document.getElementById('main').textContent")
    assert "Attention of a trained model" in text
    labels = page.run("[...document.querySelectorAll('.sides canvas')]"
                      ".map((c) => c.getAttribute('aria-label'))")  # fmt: skip
    assert labels == [f"alibi, layer {n}, head 1, {what}" for n in (1, 2)
                      for what in ("within", "beyond", "difference")]  # fmt: skip
    maps = page.run("(() => { const m = look('alibi').maps; return [m.length, m[0]]; })()")
    assert maps == [2 * 2 * 8 * (8 + 16), 255], "the first query sees itself alone"
    before = page.run(DIGEST)
    assert moved(page, "row", "ArrowRight")
    assert page.run(DIGEST) != before
    page.run("choose('alibi', false)")
    page.until("!document.querySelector('.sides')")


@pytest.mark.browser
def test_the_page_fits_a_phone_and_follows_the_colours_that_its_reader_prefers(page):
    colour = "getComputedStyle(document.body).backgroundColor"
    light, pixels = page.run(colour), page.run(DIGEST)
    drawn = page.run("+document.body.dataset.drawn")
    page.screen(1400, 1000, dark=True)
    settled(page, drawn)
    assert page.run(colour) != light
    assert page.run(DIGEST) != pixels, "canvases take the page's colours"
    page.screen(390, 844)
    assert page.run("document.documentElement.scrollWidth <= 390")
    page.run("document.getElementById('main').style.width = '1400px'")
    assert not page.run("document.documentElement.scrollWidth <= 390"), "control"


@pytest.fixture
def archived(monkeypatch):
    """What the archive has, at the sizes of the site."""
    for setting, value in SITE.items():
        monkeypatch.setattr(option_grid, setting, value)
    return store.read_archive(ARCHIVE)


def content(raw):
    """The JSON text and the frames of `explorer.encoded`."""
    (size,) = struct.unpack_from("<I", raw)
    return json.loads(raw[4 : 4 + size]), raw[4 + size :]


def test_the_archive_has_the_numbers_of_the_library(archived):
    """Of three methods, with the first choice of their options."""
    assert {name for name, measured in archived.items() if not measured.points} <= set(
        option_grid.ABSENT
    )
    shown, expected = {}, {}
    for name in ("rope", "alibi", "learned"):
        facts, frames = content(archived[name].points)
        kind, at, low, high, shape = facts["frames"][facts["points"][0]["kernel"]]
        assert kind == "u16"
        codes = np.frombuffer(frames, "<u2", math.prod(shape), at).reshape(shape)
        shown[name] = np.where(codes == 65535, np.nan, low + (high - low) * codes / 65534)
        options = {option: values[0] for option, values in option_grid.knobs(name).items()}
        expected[name] = option_grid.point(name, options.pop("head"), options).kernel
        np.testing.assert_allclose(shown[name], expected[name], atol=1e-3)
    apart = np.abs(shown["rope"][0, 0] - expected["alibi"][0, 0]).max()
    assert apart > 0.1, "control: another method"


def test_the_page_is_small(archived):
    encoded = {name: measured.points for name, measured in archived.items() if measured.points}
    maps = {
        name: (measured.maps, measured.shape)
        for name, measured in archived.items()
        if measured.maps
    }
    assert len(encoded) > 90
    assert set(maps) == WITH_MAPS & set(archived)
    assert len(explorer.html(encoded, maps).encode()) < MOST


def test_a_method_without_distances_is_refused():
    with pytest.raises(FieldError, match=r"^encoding\.name: laplacian has no distances"):
        explorer.measured("laplacian")

"""The figures of a run."""

import io
import itertools
import math
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from posenc_jax.lab import report, runs
from posenc_jax.lab.report import curves, drawing, margin, plots, vector
from tests.support.report_runs import make_records, record, shown, summarise, write_run

NAMES = ("by_length", "by_position", "difference", "position_by_length", "training")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("run"), make_records())


@pytest.mark.thorough
def test_figures_come_as_png_and_as_svg_that_is_the_same_every_time(workdir, tmp_path):
    def drawn():
        shown(workdir)
        return {path.name: path.read_bytes() for path in (workdir / "figures").iterdir()}

    first, names = drawn(), NAMES
    assert sorted(first) == sorted(f"{name}.{kind}" for name in names for kind in ("png", "svg"))
    assert first == drawn()
    for name in names:
        assert struct.unpack(">I", first[f"{name}.png"][16:20])[0] >= 1280
        assert b"<svg" in first[f"{name}.svg"]
    # The control: another salt gives other ids, so the comparison does see them.
    picture = plots.pictures(runs.read(workdir))[0]
    files = [plots.save(tmp_path, name, picture.draw)[1].read_bytes() for name in ("a", "b")]
    assert files[0] != files[1]


def test_a_validation_loss_that_rose_again_in_every_seed_is_told(tmp_path):
    def told(folder, *last):
        losses = {20: (2.0, 2.1), 40: last}
        valid = [
            record(seed, "rope", 8, loss, step=step, split="valid", metric="loss")
            for step, by_seed in losses.items()
            for seed, loss in enumerate(by_seed)
        ]
        return curves.overtrained(runs.read(write_run(tmp_path / folder, make_records() + valid)))

    (line,) = told("rose", 2.3, 2.4)
    low, high = (f"{loss / math.log(2):.3f}" for loss in (2.05, 2.35))
    assert line.startswith(
        f"rope: on validation examples bits per byte was lowest at step 20, {low}"
    )
    assert f"and is {high} at the end, step 40" in line
    assert told("fell", 1.9, 2.0) == told("one", 2.0, 2.4) == told("little", 2.01, 2.11) == []


def test_familiar_methods_look_the_same_in_every_figure_and_no_two_look_alike():
    look = lambda names, name: drawing.line_styles(names)[name]
    many = ["rope", "shaw", "nope", "fox", "alibi", "pi", "ntk"]
    for name in ("rope", "nope", "alibi"):
        assert look(many, name) == look([name], name) == look(["learned", "mlp", name], name)
    assert look(many, "fox") != look(["fox"], "fox")  # the control: others take what is free
    looks = [tuple(style.values()) for style in drawing.line_styles(many).values()]
    assert len(set(looks)) == len(many)


@pytest.mark.thorough
def test_matplotlib_is_imported_when_a_figure_is_drawn_and_not_before():
    """A run loads none before its report; only a claim has its figure beside its numbers."""
    folders = [path.parent.as_posix() for path in sorted(Path("experiments").rglob("run.py"))]
    names = [f.replace("/", ".") for f in folders if f != "experiments/claims"]
    assert "experiments.invariance.permutation" in names
    code = (
        f"import sys, {', '.join(f'{name}.run' for name in names)}\n"
        "print('matplotlib' in sys.modules)\n"
        "from posenc_jax.lab.report import plots\n"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.thorough
def test_figures_leave_matplotlib_as_they_found_it(workdir):
    before = dict(matplotlib.rcParams)
    shown(workdir)
    assert dict(matplotlib.rcParams) == before


def test_only_figures_with_something_to_draw_are_drawn(tmp_path):
    plain = [r for r in make_records() if "position" not in r["labels"]]
    plain = [r for r in plain if r["labels"]["split"] == "test"]
    rope_records = [r for r in plain if r["labels"]["encoding"] == "rope"]
    for name, records, wanted in (
        ("two", plain, ["by_length", "difference"]),
        ("one", rope_records, ["by_length"]),
        ("seed", [r for r in plain if r["seed"] == 0], ["by_length"]),
    ):
        pictures = plots.pictures(runs.read(write_run(tmp_path / name, records)))
        assert [picture.name for picture in pictures] == wanted


@pytest.mark.parametrize(("seeds", "bands"), [(2, 0), (3, 2)])
def test_a_band_is_drawn_from_three_seeds_on(tmp_path, seeds, bands):
    run = runs.read(write_run(tmp_path, make_records(seeds)))
    by_length = plots.by_length(run.by_length).axes[0]
    for axes in (by_length, *plots.by_position(run).axes):
        assert len(axes.collections) == bands
    below = "band: 95% t interval" if bands else "no band: fewer than 3 seeds"
    assert any(f"each a dot · {below}" in text.get_text() for text in by_length.texts)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("value", "figures"), [(math.nan, 2), (0.0, 4)])
def test_figures_are_drawn_from_nan_and_missing_values(tmp_path, value, figures):
    """Without a finite number by position its two figures have nothing to draw."""
    records = [{**r, "value": value} for r in make_records(seeds=1)]
    write_run(tmp_path, records)
    assert shown(tmp_path).count("<svg") == figures


def test_labels_in_the_margin_do_not_touch():
    def heights(gap):
        axes = Figure().subplots()
        axes.set_ylim(0, 1)
        labels = [margin.Label(str(y), 0.5, y, drawing.COLORS[0]) for y in (0, 0, 0.5, 0.51, 1, 1)]
        original, margin.LABEL_GAP = margin.LABEL_GAP, gap
        try:
            margin.margin_labels(axes, labels)
        finally:
            margin.LABEL_GAP = original
        at = sorted(text.xyann[1] for text in axes.texts)
        return at, min(b - a for a, b in itertools.pairwise(at))

    at, nearest = heights(margin.LABEL_GAP)
    assert nearest >= margin.LABEL_GAP - 1e-9
    assert min(at) >= 0
    assert max(at) <= 1
    assert heights(0.0)[1] == 0


def test_labels_that_would_fan_out_of_a_point_are_a_legend():
    def drawn(ends):
        figure = Figure()
        axes = figure.subplots()
        labels = [margin.Label("floor", 1, 0.0, drawing.MUTED)]
        for i, y in enumerate(ends):
            [line] = axes.plot([0, 1], [1, y], color=drawing.COLORS[i], marker="s")
            labels.append(margin.Label(f"m{i}", 1, y, drawing.COLORS[i], line))
        margin.margin_labels(axes, labels)
        legends = [text.get_text() for legend in figure.legends for text in legend.texts]
        return legends, [text.get_text() for text in axes.texts]

    names = [f"m{i}" for i in range(5)]
    assert drawn([0, 0, 0, 0, 0]) == (names, ["floor"])
    assert drawn([0, 0.2, 0.4, 0.6, 0.8]) == ([], ["floor", *names]), "control: apart"


def axes_of(run):
    return {axes.get_ylabel(): axes for axes in curves.training(run).axes}


def test_training_is_in_the_unit_of_the_results_with_what_the_run_recorded(tmp_path):
    extra = [
        record(seed, "rope", 8, value, step=40, split=split, metric=metric)
        for seed in range(3)
        for metric, split, value in (
            ("grad_norm", "train", 0.5), ("learning_rate", "train", 1e-3), ("loss", "valid", 2.0)
        )
    ]  # fmt: skip
    run = runs.read(write_run(tmp_path / "all", make_records() + extra))
    actual = axes_of(run)
    assert list(actual) == ["bits per byte", "gradient norm", "learning rate"]
    first = actual["bits per byte"].lines[0].get_ydata()
    np.testing.assert_allclose(first[0], (5 - 20 / 60) / math.log(2))
    dots = [line for line in actual["bits per byte"].lines if line.get_linestyle() == "None"]
    np.testing.assert_allclose([list(line.get_ydata()) for line in dots], [[2 / math.log(2)]])
    assert "dots: the loss on validation examples" in curves.caption(run)
    # The control: a run that recorded none of these has one panel, and says nothing of them.
    plain = runs.read(write_run(tmp_path / "plain", make_records()))
    assert list(axes_of(plain)) == ["bits per byte"]
    assert (
        curves.caption(plain) == "The training loss at each step, in bits per byte as the results."
    )


def test_the_loss_of_tokens_is_drawn_in_bits_of_their_bytes(tmp_path):
    valid = [record(seed, "rope", 8, 2.0, step=40, split="valid", metric="loss") for seed in (0, 1)]
    run = runs.read(write_run(tmp_path, make_records() + valid))
    facts = {"task": {"bytes_per_token": {"train": 4.0, "valid": 2.5}}}
    tokens = run._replace(summary=replace(run.summary, facts=facts))
    for split, per_token in facts["task"]["bytes_per_token"].items():
        losses = lambda run: [r["value"] for r in curves.curves(run, split)["rope"]]  # noqa: B023
        np.testing.assert_allclose(losses(tokens), np.array(losses(run)) / per_token)


def test_the_heatmap_holds_each_mean_by_position_and_length(tmp_path):
    run = runs.read(write_run(tmp_path, make_records()))
    *panels, bar = plots.position_by_length(run).axes
    drawn = [mesh.get_array().ravel().tolist() for axes in panels for mesh in axes.collections]
    assert drawn == [[7.0] * 3] * 6
    assert bar.get_ylabel() == "bits per byte"


def test_a_share_has_an_axis_and_a_band_within_0_and_1(tmp_path):
    """The control is a metric that is no share, whose band and axis go further."""
    values = {0: 0.8, 1: 1.0, 2: 1.0}
    ends = {}
    for metric in ("exact_match", "loss"):
        actual = [
            record(s, "rope", n, v, metric=metric) for s, v in values.items() for n in (8, 16)
        ]
        summary = report.summarise(actual, metric=metric, train_length=8)
        axes = plots.by_length(summary).axes[0]
        band = axes.collections[0].get_paths()[0].vertices[:, 1]
        ends[metric] = axes.get_ylim()[1], band.max()
        assert axes.get_ylim()[0] < band.min(), "the band is drawn whole"
    assert ends["exact_match"][0] <= 1.03
    assert ends["exact_match"][1] <= 1.0
    assert ends["loss"][1] > 1.1


def test_shares_that_are_all_alike_stand_on_the_whole_axis():
    def height(metric, last):
        actual = [record(0, "rope", n, v, metric=metric) for n, v in ((8, 0.0), (16, last))]
        summary = report.summarise(actual, metric=metric, train_length=8)
        return np.ptp(plots.by_length(summary).axes[0].get_ylim())

    assert height("exact_match", 0.0) >= 1
    assert 0.1 <= height("exact_match", 0.05) < 0.2, "control: they differ"
    assert height("loss", 0.0) < 0.01, "control: no share"


def test_baselines_outside_of_the_axes_are_named_above_them(tmp_path):
    summary = runs.read(write_run(tmp_path, make_records())).by_length
    summary = replace(summary, baselines={"bigram": 2.5, "unigram": 40.0, "nothing": 0.0})
    texts = [text.get_text() for text in plots.by_length(summary).axes[0].texts]
    [how] = [text for text in texts if "lower is better" in text]
    assert "above the figure: unigram 40.00" in how
    assert "below the figure: nothing 0.000" in how
    assert "bigram 2.500" in texts, "control: within the axes, in the margin"
    assert "bigram" not in how


def many(metric, methods, seeds=3):
    """The summary of methods with means 0.1, 0.2, ... at 8, and half of them at 16."""
    actual = [
        record(seed, f"m{i}", n, (i + 1) / 10 / (1 + (n > 8)), metric=metric)
        for seed in range(seeds) for i in range(methods) for n in (8, 16)
    ]  # fmt: skip
    lost = [{"encoding": "learned", "length": 16, "reason": "its table ends"}]
    summary = report.summarise(actual, metric=metric, train_length=8, not_measured=lost)
    return replace(summary, floors={8: 0.05, 16: 0.025})


@pytest.mark.parametrize(("metric", "first"), [("exact_match", "m7"), ("bits_per_byte", "m0")])
def test_more_methods_than_colours_are_a_heat_map_best_first(metric, first):
    summary = many(metric, 8)
    axes = plots.by_length(summary).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert (names[0], names[-1], len(names)) == (first, "floor", 10)
    cells = {
        name: mesh.get_array().filled(np.nan).ravel()
        for name, mesh in zip(names, axes.collections, strict=True)
    }
    np.testing.assert_allclose(cells["m7"], [0.8, 0.4])
    np.testing.assert_allclose(cells["floor"], [0.05, 0.025])
    assert np.isnan(cells["learned"]).all(), "what was not measured has no cell"
    texts = [text.get_text() for text in axes.texts]
    assert {".80", ".40", "–"} <= set(texts)
    [line] = axes.lines
    assert list(line.get_xdata()) == [0.5, 0.5], "between the trained length and the next"
    light = {name: np.mean(mesh.to_rgba(mesh.get_array())[..., :3])
             for name, mesh in zip(names, axes.collections, strict=True)}  # fmt: skip
    assert light[first] < 0.75 * light[{"m0": "m7", "m7": "m0"}[first]], "dark is better"
    assert "darker is better" in plots.picture_by_length("by_length", summary).caption
    # The control: one method fewer, and lines can show them.
    fewer = replace(summary, results={n: r for n, r in summary.results.items() if n != "m0"})
    assert len(plots.by_length(fewer).axes[0].lines) > 7


def test_a_heat_map_of_shares_has_the_colours_of_0_to_1():
    norms = {m: plots.by_length(many(m, 8)).axes[0].collections[0].norm for m in
             ("exact_match", "bits_per_byte")}  # fmt: skip
    assert (norms["exact_match"].vmin, norms["exact_match"].vmax) == (0, 1)
    assert norms["bits_per_byte"].vmax == pytest.approx(0.8), "control: no share"


def test_the_file_of_a_figure_is_light_or_dark_and_keeps_its_numbers():
    def draw():
        figure = Figure()
        axes = figure.subplots()
        axes.plot([0, 1.23456789], [0, 1], color=drawing.COLORS[0], alpha=0.16)
        axes.set_title("0.72 of 1.2345 tokens")
        return figure

    text = vector.file("figure", draw)
    assert "0.72 of 1.2345 tokens" in text
    assert "prefers-color-scheme: dark" in text
    assert "background: var(--page)" in text
    assert "var(--c0)" in text
    assert "opacity: 0.16" in text
    assert not [c for c in drawing.PALETTE.values() if c in text.partition("</style>")[2]]
    assert text == vector.file("figure", draw)
    ElementTree.fromstring(text)
    # The control: as Matplotlib saves it, it has the palette's colours.
    with drawing.styled("figure"):
        draw().savefig(plain := io.StringIO(), format="svg")
    assert drawing.COLORS[0] in plain.getvalue()


@pytest.mark.parametrize(("methods", "shades", "bars"), [(3, 3, 0), (4, 0, 4)])
def test_intervals_of_many_methods_are_bars_and_the_caption_says_so(methods, shades, bars):
    actual = [
        record(seed, f"method {i}", n, i + 0.1 * seed)
        for seed in range(3) for i in range(methods) for n in (8, 16)
    ]  # fmt: skip
    summary = report.summarise(actual, metric="bits_per_byte", train_length=8)
    drawn = [type(c).__name__ for c in plots.by_length(summary).axes[0].collections]
    assert drawn == ["FillBetweenPolyCollection"] * shades + ["LineCollection"] * bars
    caption = plots.picture_by_length("by_length", summary).caption
    assert ("bands 95% t intervals" in caption) == bool(shades)
    assert ("bars 95% t intervals" in caption) == bool(bars)


@pytest.mark.parametrize("lengths", [(128, 256, 512, 1024, 2048), (4, 8), (10, 12, 16), (64,)])
def test_points_of_a_length_stand_nearer_to_it_than_to_the_next(lengths):
    first, last = (drawing.aside(i, 9, lengths) for i in (0, 8))
    assert first < 1 < last
    for a, b in itertools.pairwise(lengths):
        assert a * last < b * first
    with_sides = math.log(lengths[-1] / lengths[0] * drawing.SIDE**2)
    assert math.log(last / first) < 0.1 * with_sides, "they take little of the axis"
    wide = [drawing.aside(i, 9, (128, 2048)) for i in (0, 8)]
    assert 10 * wide[1] > 11 * wide[0], "control: the factors of a wide axis, at near lengths"


def test_a_title_names_what_is_best_at_the_greatest_length():
    title = lambda records: plots.by_length(summarise(records)).axes[0].get_title()
    records = make_records()
    assert title(records) == "Bits per byte by test length: lowest at 4× with rope"
    rope_records = [r for r in records if r["labels"]["encoding"] == "rope"]
    assert title(rope_records) == "Bits per byte by test length", "the control: nothing to compare"
    gap = {"rope": 0.0, "randomized+rope": 0.249}
    near = [{**r, "value": r["value"] - gap[r["labels"]["encoding"]]} for r in records]
    assert title(near) == "Bits per byte by test length", "their seeds meet"
    several = lambda r: r["labels"]["encoding"] == "rope" or r["seed"] == 0
    one_seed = [record for record in records if several(record)]
    assert title(one_seed) == "Bits per byte by test length", "the other has one seed"


def test_lengths_count_what_the_sizes_of_the_task_count():
    plain = summarise(make_records())
    label = lambda **fields: plots.by_length(replace(plain, **fields)).axes[0].get_xlabel()
    on = lambda task: label(metric="loss", facts={"task": {"task": task}})
    assert label() == "test length (bytes, log scale)"
    assert on("translation") == "test length (clauses, log scale)"
    assert on("canvas:own.npz") == "test length (patches a side, log scale)"
    assert on("copy") == "test length (symbols, log scale)", "the control: no unit of its own"

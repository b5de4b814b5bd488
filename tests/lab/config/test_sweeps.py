"""A sweep as data: what a description expands to, and what is refused in one line."""

import pytest

import train
from posenc_jax.lab.config import sweeps
from posenc_jax.lab.config.sweeps import Point, expand, grid, product, zipped
from scripts.sweep import main, overrides, read


def test_grids_zips_and_products():
    assert grid({"a": (1, 2), "b": ["x", "y"]}) == (
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    )  # fmt: skip
    assert zipped({"a": (1, 2), "b": (3, 4)}) == ({"a": 1, "b": 3}, {"a": 2, "b": 4})
    assert product(zipped({"a": (1, 2), "b": (3, 4)}), grid({"c": (5, 6)})) == (
        {"a": 1, "b": 3, "c": 5}, {"a": 1, "b": 3, "c": 6},
        {"a": 2, "b": 4, "c": 5}, {"a": 2, "b": 4, "c": 6},
    )  # fmt: skip
    assert grid({"a": (1,)}) + grid({"b": (2,)}) == ({"a": 1}, {"b": 2})


def test_points_that_differ_in_the_seed_alone_are_one_run():
    actual = expand(grid({"encoding.name": ("rope", "t5"), "train.lr": (0.1,), "seed": (3, 4, 5)}))
    assert actual == [
        Point(
            "rope-lr0.1", {"encoding.name": "rope", "train.lr": 0.1, "first_seed": 3, "seeds": 3}
        ),
        Point("t5-lr0.1", {"encoding.name": "t5", "train.lr": 0.1, "first_seed": 3, "seeds": 3}),
    ]
    # The control: under any other name the same numbers are runs of their own.
    assert len(expand(grid({"encoding.name": ("rope", "t5"), "data.seed": (3, 4, 5)}))) == 6


def test_names_are_fit_for_folders_and_tell_points_apart():
    names = [
        p.name for p in expand(grid({"task.name": ("file:a/../b",), "eval.lengths": ((8, 16),)}))
    ]
    assert names == ["file-a-..-b-lengths8x16"]
    alike = expand(grid({"a.b": ("x/y", "x:y")}))
    assert len({point.name for point in alike}) == 2
    assert all(point.name.startswith("x-y-") for point in alike)
    (long,) = expand(grid({"a": ("z" * 500,)}))
    assert len(long.name) == sweeps.LONGEST
    # Stable: another value of a field leaves the names of the others as they are.
    assert {p.name for p in expand(grid({"a": (1, 2)}))} < {
        p.name for p in expand(grid({"a": (1, 2, 3)}))
    }


@pytest.mark.parametrize(
    ("describe", "words"),
    [
        (lambda: zipped({"a": (1, 2), "b": (1,)}), ["zipped", "a 2", "b 1"]),
        (lambda: grid({"a": ()}), ["sweep", "a", "values"]),
        (lambda: grid({"a": "rope"}), ["a", "rope", "sequence"]),
        (lambda: product(grid({"a": (1,)}), grid({"a": (2,)})), ["product", "a", "more than one"]),
        (lambda: expand(()), ["no points"]),
        (lambda: expand(grid({"a": (1, 1)})), ["a=1", "given twice"]),
        (lambda: expand(grid({"a": (1,), "seed": (0, 0)})), ["a=1", "seed 0", "given twice"]),
        (lambda: expand(grid({"a": (1,), "seed": (0, 2)})), ["a=1", "0, 2", "consecutive"]),
        (lambda: expand(({"a": 1}, {"a": 1, "seed": 0})), ["a=1", "none, 0", "consecutive"]),
        (lambda: expand(grid({"seeds": (2,), "seed": (0, 1)})), ["seeds: seed sets"]),
        (lambda: sweeps.resolve({"a": {"b": 1}}, {"a.b.c": 1}), ["config.a.b.c", "no such field"]),
        (lambda: overrides(["--train.lr=1"]), ["--train.lr=1", "--config.FIELD=VALUE"]),
    ],
)  # fmt: skip
def test_a_wrong_description_is_refused_in_one_line(describe, words):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        describe()
    assert all(word in str(refused.value) for word in words), refused.value


CONFIG = """
from configs import common
from posenc_jax.lab.config import sweeps

def get_config(argument=""):
    return common.quick(common.config("length_extrapolation"))

def get_sweep(argument=""):
    return {}
"""


@pytest.fixture
def config(tmp_path):
    def write(sweep):
        path = tmp_path / "mine.py"
        path.write_text(CONFIG.format(sweep))
        return str(path)

    return write


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ('sweeps.grid({"train.stepz": (1, 2)})', ["config.train.stepz", "did you mean steps"]),
        ('sweeps.grid({"train.lr.x": (1, 2)})', ["config.train.lr.x"]),
        ('sweeps.grid({"encoding.name": ("rope", "rop")})', ["config.encoding.name", "rop"]),
        ('sweeps.grid({"train.lr": (0.1, -0.1)})', ["config.train.lr", "-0.1"]),
        ('sweeps.grid({"train.lr": (0.1, 0.1)})', ["train.lr=0.1", "given twice"]),
    ],
)
def test_a_point_that_cannot_run_is_refused_before_any_runs(config, sweep, words, capsys):
    assert main([f"--config={config(sweep)}", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words), error


def test_a_config_without_a_sweep_and_a_wrong_point_are_refused(capsys):
    assert main(["--config=configs/rope_extrap.py"]) == 2
    assert "get_sweep" in capsys.readouterr().err
    assert main(["--config=configs/extrap.py:rope,quick", "--point=rope-lr1"]) == 2
    assert "did you mean rope-lr" in capsys.readouterr().err
    assert main(["--config=configs/none.py"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_dry_run_lists_and_counts_and_runs_nothing(tmp_path, capsys):
    folder = tmp_path / "sweep"
    assert (
        main(["--config=configs/extrap.py:rope,t5,quick", f"--folder={folder}", "--dry-run"]) == 0
    )
    out = capsys.readouterr().out
    assert "t5-lr0.003" in out
    assert "4 points, 4 to run" in out
    assert not folder.exists()


FIELDS = {
    "encoding.name": "randomized+rope",
    "encoding.base": 5e5,  # no config has it before
    "encoding.pairing": "interleaved",
    "train.lr": 1e-4,
    "train.steps": 7,
    "eval.lengths": (8, 16),
    "model.masks.loss": False,
    "wandb.tags": ("a b", "c"),
}


def test_every_kind_of_value_reaches_the_config_through_the_command_line(tmp_path, monkeypatch):
    sweep = sweeps.Sweep("s", "configs/extrap.py:rope,quick", [Point("p", FIELDS)])
    config, workdir = train.parse(sweep.command(sweep.points[0], tmp_path))
    there = sweeps.dotted(config)
    assert {field: there[field] for field in FIELDS} == FIELDS
    assert workdir == str(tmp_path)
    # The control: what the point leaves out stays as the config file has it.
    assert there["train.batch"] == 16


def test_the_shared_fields_of_a_sweep_and_its_group_are_in_every_point():
    sweep, configs = read("configs/extrap.py:rope,quick", overrides(["--config.train.steps=3"]))
    assert [config["train"]["steps"] for config in configs.values()] == [3, 3]
    assert {config["wandb"]["group"] for config in configs.values()} == {sweep.name}
    assert {config["seeds"] for config in configs.values()} == {3}

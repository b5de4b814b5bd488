"""Every config's quick variant runs to its report; a method made outside runs like any other."""

import importlib
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

import experiments
from configs import tasks_extrap
from experiments.compare.length_extrapolation import run as length_extrapolation
from experiments.compare.length_extrapolation.config import variant
from posenc_jax import Dims, Encoding, make, register
from posenc_jax.encoding import place
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.layout import full
from posenc_jax.options import FieldError

FILES = sorted(path.stem for path in pathlib.Path("configs").glob("*.py") if path.stem != "common")
# The other experiments are run to their reports by their own tests.
# By their text, so that a config that is half written stops no other test.
BY_LENGTH = [
    stem
    for stem in FILES
    if '"length_extrapolation"' in pathlib.Path(f"configs/{stem}.py").read_text()
]


def run(stem, argument, workdir, **changes):
    config = importlib.import_module(f"configs.{stem}").get_config(argument)
    config.update_from_flattened_dict({f.replace("__", "."): v for f, v in changes.items()})
    experiments.prepare(config.to_dict(), str(workdir))()
    return config


@pytest.mark.thorough
def test_every_task_is_run_by_its_name():
    for name in tasks.names("tokens"):
        for argument in (name, f"{name},quick"):
            experiments.check(tasks_extrap.get_config(argument).to_dict())
    least = {
        name: task.least for name in tasks.names("tokens") if (task := tasks.check(name)).least > 1
    }
    assert {n: least[n] for n in tasks_extrap.SMALLEST} == tasks_extrap.SMALLEST
    config = tasks_extrap.get_config("periodic")
    config.train.min_length = 8
    with pytest.raises(FieldError, match="8 is not a size of task periodic; 9 or more"):
        experiments.check(config.to_dict())


@pytest.mark.thorough
@pytest.mark.parametrize("stem", BY_LENGTH)
def test_quick_variant_ends_in_a_report(stem, tmp_path, capsys):
    config = run(stem, "quick", tmp_path, seeds=1)
    said = capsys.readouterr().out
    summary = json.loads((tmp_path / "summary.json").read_text())
    for length in config.eval.lengths:
        for cells in summary["results"].values():
            assert len(cells[str(length)]["seeds"]) == 1
    assert summary["facts"]["evaluation_programs"] >= 1
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert {p.suffix for p in (tmp_path / "figures").iterdir()} == {".png", ".svg"}
    assert config.encoding.name.split(",")[0] in said
    assert said.splitlines()[0].startswith(f"{config.experiment}: 1 seed on ")
    assert " parameters; 60 steps of 16 x " in said
    labels = [r["labels"] | {"step": r["step"]} for r in runs.read(tmp_path).records]
    assert {at["step"] for at in labels if at["split"] == "valid"} == {20, 40, 60}
    run(stem, "quick", tmp_path, seeds=1)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{tmp_path}: finished already; nothing to do"
    assert said[1] == f"report: {tmp_path / 'report.html'}"


@pytest.mark.parametrize("stem", FILES)
def test_a_config_is_data_and_says_how_to_run_it(stem):
    module = importlib.import_module(f"configs.{stem}")
    assert f"--config=configs/{stem}.py" in module.__doc__


@pytest.mark.parametrize(
    ("stem", "word", "said"),
    [
        ("lm", "7m", "'7m' is not known; choices: 6m, 38m, 124m, 1b, quick, names of methods"),
        ("lm", "rope,6mm", "'6mm' is not known; did you mean 6m? choices: 6m, 38m"),
        ("vision", "draww", "'draww' is not known; did you mean draw? choices: what, where"),
        ("leaderboard", "positon", "'positon' is not known; did you mean position, position-"),
        ("lm", "rope,6m", ""),  # controls
        ("lm", "a_method_of_a_user,rope+another", ""),
        ("leaderboard", "others,quick", ""),
    ],
)
def test_a_word_that_is_no_size_and_no_method_is_told_both(stem, word, said):
    get_config = importlib.import_module(f"configs.{stem}").get_config
    if not said:
        get_config(word)
        return
    with pytest.raises(FieldError, match="^" + re.escape(f"--config: argument {said}")):
        get_config(word)


def leaves(config, above=""):
    """The dotted names of a config's fields, with their types."""
    for name in config:
        kind = config.get_type(name)
        if kind is ConfigDict:
            yield from leaves(config[name], f"{above}{name}.")
        else:
            yield f"{above}{name}", kind


@pytest.mark.parametrize("stem", FILES)
def test_a_field_that_is_not_set_has_a_type_by_which_it_can_be_set(stem):
    """absl refuses to set a field of the type of None."""
    config = importlib.import_module(f"configs.{stem}").get_config()
    assert [name for name, kind in leaves(config) if kind is type(None)] == []
    bare = ConfigDict(config.to_dict())
    unset = [name for name, kind in leaves(bare) if kind is type(None)]
    assert unset or stem == "published", "control: the same fields without their types"


@pytest.mark.thorough
def test_a_new_method_needs_one_function(tmp_path, registering, capsys):
    @register(kind="bias", formula="0", paper="textbook")
    def silent() -> Encoding:
        """A method without hooks."""
        return Encoding()

    run("extrap", "silent,quick", tmp_path, seeds=1, train__steps=2, eval__lengths=(32,))
    assert "silent" in json.loads((tmp_path / "summary.json").read_text())["results"]


@pytest.mark.thorough
def test_weights_are_read_under_an_encoding_that_keeps_them_elsewhere():
    """A chain holds its parts' weights in a tuple; one that has none may still look for heads."""
    config = importlib.import_module("configs.extrap").get_config("t5,quick")
    checked = experiments.check(config.to_dict())
    model = transformer.build(checked.model, make("t5"), 256)
    params = jax.jit(model.init)(jax.random.key(0))
    tokens_BT, at = jnp.arange(8, dtype=jnp.int32)[None], full(1, 8)

    def read(name):
        reader = length_extrapolation._reader(checked, make(name), 256)
        return np.asarray(jax.jit(reader.apply)(params, tokens_BT, at))

    wanted = np.asarray(jax.jit(model.apply)(params, tokens_BT, at))
    np.testing.assert_allclose(read("clamped+t5"), wanted, atol=1e-6)
    assert np.abs(read("alibi") - wanted).max() > 1e-3, "control: another reads other logits"


@pytest.mark.thorough
@pytest.mark.parametrize(("data", "trained", "tested"), [("text", 64, 256), ("copy", 34, 130)])
def test_extensions_are_told_lengths_in_tokens(data, trained, tested):
    """16 symbols and their copy are 34 tokens: up to them dynamic_ntk is rope, beyond them ntk."""
    config = importlib.import_module("configs.length_extrapolation").get_config(data)
    checked, dims = experiments.check(config.to_dict()), Dims(16, 2, 8, 1)

    def angles(name, times, tokens):
        encoding = variant(checked, "rope", name, times * config.train.length)
        assert encoding.table is not None
        placed = place(encoding, None, full(1, tokens))
        return np.asarray(jax.tree.leaves(encoding.table({}, placed, dims))[0])

    rope, ntk, dynamic = (angles(name, 1, trained) for name in ("rope", "ntk", "dynamic_ntk"))
    assert (rope == ntk).all()
    assert (rope == dynamic).all()
    rope, ntk, dynamic = (angles(name, 4, tested) for name in ("rope", "ntk", "dynamic_ntk"))
    np.testing.assert_allclose(dynamic, ntk, rtol=1e-5, atol=1e-5)
    assert np.abs(rope - ntk).max() > 0.1, "control: rope is not extended"

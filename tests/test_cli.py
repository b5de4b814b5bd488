"""The command line: every wrong input gets one line that names it, before anything is read."""

import os
import subprocess
import sys

import pytest

import experiments
from configs import rope_extrap

MAIN = "--config=configs/rope_extrap.py"


def refusal(workdir="unused", **changes):
    """What `prepare` says of the main job's config with dotted fields changed."""
    config = rope_extrap.get_config("quick").to_dict()
    for field, value in changes.items():
        *path, last = field.split("__")
        here = config
        for name in path:
            here = here[name]
        here[last] = value
    with pytest.raises(ValueError, match=r".") as refused:
        experiments.prepare(config, workdir)
    line = str(refused.value)
    assert "\n" not in line
    return line


CASES = [
    ({"experiment": "length_extrapolaton"}, ["config.experiment", "length_extrapolation"]),
    ({"train__stepz": 3}, ["config.train.stepz", "steps"]),
    ({"modle": {}}, ["config.modle", "model"]),
    ({"train__steps": "many"}, ["config.train.steps", "many", "integer"]),
    ({"train__steps": 0}, ["config.train.steps", "0"]),
    ({"train__lr": -1.0}, ["config.train.lr", "-1.0"]),
    ({"train__min_length": 999}, ["config.train", "min_length", "999"]),
    ({"model__kind": "decodr"}, ["config.model.kind", "decodr", "decoder", "lstm"]),
    ({"model__dtype": "float16"}, ["config.model.dtype", "float16", "bfloat16"]),
    ({"model__heads": 5}, ["config.model", "32", "5", "4, 8"]),
    ({"model__width": 36}, ["config.model.width", "36", "rope", "9", "even"]),
    ({"encoding__name": "rop"}, ["config.encoding.name", "rop", "rope"]),
    ({"encoding__pairing": "quarter"}, ["encoding.pairing", "quarter", "half", "interleaved"]),
    ({"encoding__bse": 3.0}, ["encoding.bse", "base"]),
    ({"encoding__base": -1.0}, ["base", "-1.0"]),
    ({"encoding__name": "rope+xpos"}, ["rope", "xpos"]),
    ({"encoding__name": "rope+randomized"}, ["randomized", "right"]),
    ({"encoding__name": "rope+learned_2d"}, ["rope", "learned_2d", "axes"]),
    ({"encoding__name": "axial"}, ["axial", "axes"]),
    ({"eval__lengths": ()}, ["config.eval.lengths"]),
    ({"eval__lengths": (0,)}, ["config.eval.lengths", "0"]),
    ({"eval__lengths": (2**20,)}, ["config.eval.lengths", str(2**20)]),
    ({"eval__variants": ("yarm",)}, ["yarm", "yarn"]),
    ({"task__name": "stdlb"}, ["config.task.name", "stdlb", "stdlib"]),
    ({"task__name": "file:/no/such/corpus"}, ["task.name", "/no/such/corpus"]),
    ({"task__symbols": 3}, ["config.task.symbols", "stretch"]),
    ({"wandb__mode": "on"}, ["config.wandb.mode", "on", "offline"]),
    ({"seeds": 0}, ["config.seeds", "0"]),
]


@pytest.mark.parametrize(("changes", "words"), CASES, ids=lambda v: "-".join(v))
def test_wrong_config_is_one_line(changes, words):
    line = refusal(**changes)
    for word in words:
        assert word in line, line


def test_length_past_what_the_encoding_reaches():
    changes = {"encoding__name": "learned", "encoding__length": 64, "encoding__beyond": "error"}
    line = refusal(**changes, eval__variants=(), eval__lengths=(32, 128))
    assert all(word in line for word in ("config.eval.lengths", "128", "learned", "64"))


def test_a_taken_workdir_is_refused(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    assert str(tmp_path) in refusal(workdir=str(tmp_path), seeds=1)


def test_a_good_config_is_accepted(tmp_path):
    """The control of all refusals above."""
    assert callable(experiments.prepare(rope_extrap.get_config("quick").to_dict(), str(tmp_path)))


def command(*arguments):
    done = subprocess.run(
        [sys.executable, "train.py", *arguments], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([MAIN, "--config.train.stepz=3"], ["config.train.stepz", "steps"]),
        ([MAIN, "--config.trian.steps=3"], ["config.trian"]),
        ([MAIN, "--config.train.steps=3.5"], ["config.train.steps", "3.5"]),
        ([MAIN, "leftover"], ["leftover"]),
        ([MAIN, "--workdri=x"], ["workdri"]),
        (["--config=configs/none.py"], ["configs/none.py"]),
        (["--config=configs/rope_extrap.py:quik"], ["quik", "quick"]),
        ([], ["--config"]),
    ],
    ids=lambda v: " ".join(v),
)
def test_wrong_command_is_one_line_and_status_2(arguments, words):
    status, error = command(*arguments)
    assert status == 2, error
    assert error.count("\n") == 0, error
    for word in words:
        assert word in error, error


def test_a_run_on_a_set_that_is_not_prepared_is_refused_before_jax_loads(tmp_path):
    """Loading JAX takes longer than all of it. Here that is an error; the control gets to it."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise ImportError('JAX loads')")
    paths = {"PYTHONPATH": str(tmp_path), "TFDS_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "train.py", "--config=configs/extrap.py"]
    said = {}
    for name in ("tfds:lm1b", "stdlib"):
        done = subprocess.run(
            [*command, f"--config.task.name={name}"],
            env={**os.environ, **paths}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        said[name] = (done.returncode, done.stderr.splitlines()[-1])
    assert said == {
        "tfds:lm1b": (2, f"error: config.task.name: tfds:lm1b is not prepared in {tmp_path}; once, "
                         "type: python scripts/prepare_data.py lm1b"),
        "stdlib": (1, "ImportError: JAX loads"),
    }  # fmt: skip

"""A wrong value in a config is refused by one line that names its field, before any run starts."""

import importlib
from contextlib import nullcontext

import pytest

import experiments
from configs import rope_extrap
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


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
    if not line.startswith("workdir"):
        assert isinstance(refused.value, FieldError), "data, not a line alone"
        assert refused.value.path[0] == "config"
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
    (
        {"model__first_norm": False, "model__norm_at": "post"},
        ["config.model", "first_norm False", "norm_at post", "pre, both"],
    ),
    (
        {"model__parallel": True, "model__norm_at": "post"},
        ["config.model", "parallel", "norm_at pre"],
    ),
    ({"model__biases": ("norm", "norm")}, ["config.model.biases", "'norm' is given twice"]),
    ({"model__width": 36}, ["config.model.width", "36", "rope", "9", "even"]),
    ({"train__average": 61}, ["config.train.average", "61 is more than the 60 steps"]),
    ({"train__remat_policy": "products"}, ["config.train", "remat_policy 'products'", "remat"]),
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
    ({"eval__variants": ("yarm",)}, ["config.eval.variants", "yarm", "yarn"]),
    ({"encoding__name": "rope,nope"}, ["config.eval.variants", "rope, nope", "train one"]),
    (
        {"eval__variants": ("rope", "learned")},
        ["config.eval.variants", "learned", "table [32, 32]"],
    ),
    ({"eval__variants": ("t5+rope",)}, ["config.eval.variants", "t5+rope", "table", "none"]),
    ({"eval__variants": ("axial",)}, ["config.eval.variants", "axial", "2 axes"]),
    ({"eval__variants": ("abacus+rope",)}, ["config.eval.variants", "abacus", "groups"]),
    ({"encoding__name": "nope", "model__width": 36}, ["config.eval.variants", "36", "rope", "9"]),
    ({"model__kind": "encoder"}, ["config.model.kind", "encoder", "stdlib", "decoder", "masked"]),
    ({"model__kind": "encoder", "task": {"name": "copy"}}, ["config.model.kind", "copy"]),
    ({"model__kind": "encoder_decoder"}, ["config.model.kind", "stdlib", "one sequence"]),
    ({"task__masked": 1e-6}, ["config.task.masked", "1e-06", "1.53e-05"]),
    ({"task__name": "stdlb"}, ["config.task.name", "stdlb", "stdlib"]),
    ({"task__name": "file:/no/such/corpus"}, ["task.name", "/no/such/corpus"]),
    ({"task__symbols": 3}, ["config.task.symbols", "stretch"]),
    ({"wandb__mode": "on"}, ["config.wandb.mode", "on", "offline"]),
    ({"seeds": 0}, ["config.seeds", "0"]),
    ({"seeds": 2**31 - 1}, ["config.seeds", "4096"]),
    ({"eval__lengths": (2**31 - 1,)}, ["config.eval.lengths", str(2**24)]),
    ({"encoding__name": ","}, ["config.encoding.name", "','", "empty"]),
    ({"encoding__name": "rope+"}, ["config.encoding.name", "'rope+'", "empty"]),
    ({"encoding__base": float("inf")}, ["config.encoding.base", "inf", "finite"]),
    ({"encoding__name": "irope", "encoding__every": 10**12}, ["encoding.every", str(2**31 - 1)]),
    ({"encoding__name": "longrope", "encoding__short": ("a", "b")}, ["encoding.short", "float"]),
    ({"task__name": "copy", "task__stretch": 8}, ["config.task.stretch", "alphabet"]),
    ({"train": 3}, ["config.train", "3"]),
    ({"workdir": "/dev/null/x"}, ["workdir: /dev/null/x"]),
    ({"workdir": "/proc/x"}, ["workdir: /proc/x"]),
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
    """The control of all refusals above, and values that are close to them."""
    config = rope_extrap.get_config("quick").to_dict()
    assert callable(experiments.prepare(config, str(tmp_path)))
    config["encoding"]["base"] = 10**12  # a float, given as an int
    config["train"] |= {"average": 60, "warmup": 60, "remat": True, "remat_policy": "products"}
    assert callable(experiments.prepare(config, str(tmp_path / "new" / "folder")))
    assert list(tmp_path.iterdir()) == []


def test_weights_averaged_over_many_steps_are_evaluated_at_an_early_one():
    config = rope_extrap.get_config("quick").to_dict()
    config["train"]["average"] = 100
    with pytest.raises(FieldError, match=r"^config.train.average: 100 is more than the 60 steps"):
        experiments.check(config)
    config["start"] = {"run": "run", "step": 60}
    experiments.check(config)


@pytest.mark.parametrize(("warmup", "told"), [(60, True), (59, False)])
def test_a_warmup_as_long_as_the_training_is_told(warmup, told, capsys):
    config = rope_extrap.get_config("quick")
    config.train.warmup = warmup
    experiments._say_unfinished_warmups(experiments.check(config.to_dict()))
    line = "config.train.warmup: 60, and 60 steps in all, so the learning rate never reaches its "
    assert capsys.readouterr().out == f"{line}largest value\n" * told


@pytest.mark.parametrize("alphabet", [10**12, 2**31 - 1, 2**20 + 1, 2**20])
def test_an_alphabet_has_a_largest_size(alphabet):
    refused = alphabet > 2**20
    with pytest.raises(ValueError, match=r"^task.alphabet: ") if refused else nullcontext():
        tasks.check("copy", alphabet=alphabet)


def test_commas_part_methods_and_not_the_path_of_a_text():
    assert schema.TaskConfig(name="file:a,,b,b").name == "file:a,,b,b"
    for name in ("rope,,nope", "rope,rope"):
        with pytest.raises(ValueError, match="name"):
            schema.EncodingConfig(name=name)


ROTARY = (
    "rope", "pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn", "llama3", "longrope", "drope",
    "nope", "fope", "alibi", "interpolated+rope", "clamped+rope",
)  # fmt: skip


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(
    ("name", "variants", "kind", "masked"),
    [
        ("rope", ROTARY, "decoder", 0.0),
        ("t5", ("t5", "clamped+t5", "rope+t5", "nope"), "decoder", 0.0),
        ("rope,nope", (), "decoder", 0.0),
        ("rope", (), "encoder", 0.15),
        ("rope", (), "decoder", 0.15),
        ("sinusoidal", (), "lstm", 2**-16),
    ],
)
def test_values_close_to_refused_ones_are_accepted(name, variants, kind, masked):
    config = rope_extrap.get_config("quick")
    config.encoding.name, config.eval.variants = name, variants
    config.model.kind = kind
    config.task.masked = masked
    experiments.check(config.to_dict())


@pytest.mark.parametrize(
    ("stem", "model"),
    [
        ("extrap", "model"),
        ("leaderboard", "model"),
        ("padding_leakage", "model"),
        ("permutation", "model"),
        ("permutation", "text.model"),
        ("claims", "text.model"),
        ("images", "model"),
    ],
)
def test_heads_too_narrow_for_a_method_are_refused_by_every_experiment(stem, model):
    argument = "rope-1,quick" if stem == "claims" else "rope,quick"
    config = importlib.import_module(f"configs.{stem}").get_config(argument)
    width = config.to_dict()["text"]["model"] if model == "text.model" else config.model
    config.update_from_flattened_dict({f"{model}.heads": width["width"] // 2})
    experiments.check(config.to_dict())  # control: two channels a head
    config.update_from_flattened_dict({f"{model}.heads": width["width"]})
    message = rf"^config\.{model}\.width: (\d+) over \1 heads does not suit rope: [^\n]*even width$"
    with pytest.raises(ValueError, match=message):
        experiments.check(config.to_dict())


TWICE = [
    ("extrap", {"eval.lengths": (16, 16, 8)}, "config.eval.lengths: 16"),
    ("rope_extrap", {"eval.variants": ("rope", "yarn", "rope")}, "config.eval.variants: 'rope'"),
    ("images", {"eval.lengths": (4, 8, 4)}, "config.eval.lengths: 4"),
    ("padding_leakage", {"data.amounts": (4, 4)}, "config.data.amounts: 4"),
    ("padding_leakage", {"data.sides": ("left", "left")}, "config.data.sides: 'left'"),
    ("permutation", {"equivariance.lengths": (2, 2)}, "config.equivariance.lengths: 2"),
    ("permutation", {"equivariance.float64": ("lstm", "lstm")}, "config.equivariance.float64: "),
    ("permutation", {"text.eval.lengths": (16, 16)}, "config.text.eval.lengths: 16"),
    ("leaderboard", {"train.rates": (0.1, 0.1)}, "config.train.rates: 0.1"),
    ("published", {"rates": (0.1, 0.1)}, "config.rates: 0.1"),
    ("published", {"rows": "reverse,reverse"}, "config.rows: 'reverse'"),
    ("claims", {"claims": "sin-2,sin-2"}, "config.claims: 'sin-2'"),
]


@pytest.mark.parametrize(("stem", "changes", "said"), TWICE, ids=[said for _, _, said in TWICE])
def test_a_case_given_twice_is_refused(stem, changes, said):
    """Each would be measured twice."""
    config = importlib.import_module(f"configs.{stem}").get_config("quick")
    experiments.check(config.to_dict())  # control
    with config.unlocked():
        for field, value in changes.items():
            *path, last = field.split(".")
            part = config
            for name in path:
                part = part[name]
            part[last] = value
    with pytest.raises(FieldError) as caught:
        experiments.check(config.to_dict())
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith(" is given twice")

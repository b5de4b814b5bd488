"""Optimizers and schedules by name: which may be packed, what they compute, what is refused."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posenc_jax import make
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig, NamedConfig, TrainConfig, check
from posenc_jax.lab.hosts.fast_training import pack, unpack
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training import loop, optimizers
from posenc_jax.options import FieldError
from tests.support.catalogue import gap

KEYS = jax.random.split(jax.random.key(0), 8)
PARAMS = {
    "embed": jax.random.normal(KEYS[0], (5, 4)),
    "block": {
        "kernel": 3 * jax.random.normal(KEYS[1], (4, 6)),
        "bias": jax.random.normal(KEYS[2], (6,)),
        "scale": jnp.float32(1.5),
    },
}
GRADS = [
    jax.tree.map(lambda leaf, key=key: jax.random.normal(key, leaf.shape) * leaf, PARAMS)
    for key in KEYS[3:6]
]


def named(name, **options):
    return NamedConfig(name=name, **options)


def built(name, **options):
    return optimizers.make(optax.constant_schedule(0.1), 1.0, 0.1, named(name, **options))


def steps(tx, packed):
    """The parameters after three steps."""
    packed_tree = lambda tree: pack(tree, tree) if packed else tree
    params = packed_tree(PARAMS)
    state = tx.init(params)
    with jax.numpy_dtype_promotion("standard"):
        for grads in GRADS:
            updates, state = tx.update(packed_tree(grads), state, params)
            params = optax.apply_updates(params, updates)
    return unpack(params)


@pytest.mark.thorough
@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_an_optimizer_is_packed_if_that_changes_nothing_and_only_then(name):
    """The controls are those that read a leaf's norm or shape: another result, or an error."""
    tx = built(name)
    plain = steps(tx, packed=False)
    assert gap(plain, PARAMS) > 1e-4, "it moves"
    try:
        same = gap(plain, steps(tx, packed=True)) < 1e-5
    except (ValueError, TypeError):  # muon and adafactor have states of other trees
        same = False
    assert tx.elementwise == same


def test_optimizers_that_read_leaves_are_there():
    table = optimizers.OPTIMIZERS
    assert {name for name in table if not built(name).elementwise} == {
        "lamb", "lars", "adafactor", "muon",
    }  # fmt: skip


TASK = tasks.make("copy", alphabet=8)
CONFIG = TrainConfig(length=6, min_length=1, batch=8, steps=3, lr=1e-2, warmup=1, chunk=3)


@pytest.mark.thorough
def test_a_training_does_not_pack_what_reads_leaves(monkeypatch):
    """LAMB had another loss on a CPU than elsewhere, in silence."""
    shape = ModelConfig(width=16, heads=2, layers=1)
    model = transformer.build(shape, make("rope"), TASK.vocab)
    config = CONFIG.model_copy(update={"optimizer": named("lamb")})

    def losses():
        actual = []
        loop.train(model, TASK, config, 1, 0, True, lambda m, seconds: actual.append(m["loss"]))
        return np.concatenate(actual, axis=1)

    actual = losses()
    monkeypatch.setattr(loop, "pack", lambda state, like: state)
    np.testing.assert_allclose(losses(), actual, rtol=1e-6)
    monkeypatch.undo()
    whole = optimizers.optimizer(config)
    monkeypatch.setattr(loop, "optimizer", lambda config: whole._replace(elementwise=True))
    assert abs(losses() - actual).max() > 1e-3, "control: packed"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["adafactor", "muon"])
def test_optimizers_of_other_states_train_seeds_together(name):
    shape = ModelConfig(width=16, heads=2, layers=1)
    model = transformer.build(shape, make("t5"), TASK.vocab)
    config = CONFIG.model_copy(update={"optimizer": named(name)})
    state = loop.train(model, TASK, config, 2, 0, True, lambda metrics, seconds: None)
    assert state.step.tolist() == [3, 3]
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(state.params))


@pytest.mark.thorough
def test_the_default_is_adamw_on_a_cosine_to_a_tenth():
    config = CONFIG.model_copy(update={"steps": 50, "warmup": 10, "lr": 3e-3, "decay": 0.05})
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 10, 50, 3e-3 / 10)
    matrices = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    wanted = optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.adamw(rate, b2=0.98, weight_decay=0.05, mask=matrices),
    )
    assert gap(steps(optimizers.optimizer(config), False), steps(wanted, False)) == 0
    at = jnp.arange(60.0)
    np.testing.assert_array_equal(optimizers.schedule(config)(at), rate(at))
    same = jax.tree.structure(wanted.init(PARAMS))
    assert jax.tree.structure(optimizers.optimizer(config).init(PARAMS)) == same, "checkpoints"
    wide = config.model_copy(update={"optimizer": named("adamw", b2=0.999)})
    assert gap(steps(optimizers.optimizer(wide), False), steps(wanted, False)) > 1e-6, "control"


@pytest.mark.thorough(after=8)
@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_weight_decay_is_of_matrices_and_not_of_the_gradient(name):
    """Without a gradient a matrix shrinks by the rate times the decay, unless its step has a norm
    of its own; a vector stays.
    """
    tx = built(name)
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = tx.update(zeros, tx.init(PARAMS), PARAMS)
    matrix, vector = updates["block"]["kernel"], updates["block"]["bias"]
    assert float(jnp.abs(vector).max()) < 1e-6
    wanted = -0.1 * 0.1 * PARAMS["block"]["kernel"]
    near = bool(jnp.allclose(matrix, wanted, rtol=1e-3))
    assert near or name in ("lamb", "lars"), "control: these scale a step by the norm of its leaf"
    assert float((matrix * PARAMS["block"]["kernel"]).sum()) < 0


@pytest.mark.parametrize("name", ["adamw", "adafactor", "muon"])
def test_leaves_under_undecayed_names_have_no_weight_decay_and_the_others_are_as_without(name):
    def updates(**more):
        tx = optimizers.make(optax.constant_schedule(0.1), 1.0, 0.1, named(name), **more)
        with jax.numpy_dtype_promotion("standard"):
            return tx.update(GRADS[0], tx.init(PARAMS), PARAMS)[0], tx.elementwise

    (plain, packed), (spared, spared_packed) = updates(), updates(undecayed=("embed",))
    assert gap(spared["block"], plain["block"]) == 0
    wanted = plain["embed"] + 0.1 * 0.1 * PARAMS["embed"]
    np.testing.assert_allclose(spared["embed"], wanted, rtol=1e-5, atol=1e-7)
    assert gap(spared["embed"], plain["embed"]) > 1e-3, "control"
    assert (packed, spared_packed) == (name == "adamw", False), "one array has no paths"
    with pytest.raises(FieldError, match=r"^train.undecayed: no weights are under 'embd'; did you"):
        updates(undecayed=("embd",))


def test_muon_makes_matrices_inside_the_model_orthogonal():
    tx = optimizers.make(optax.constant_schedule(1.0), 1e9, 1e-9, named("muon", nesterov=False))
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = tx.update(GRADS[0], tx.init(PARAMS), PARAMS)
    spread = lambda leaf: np.ptp(np.linalg.svd(np.asarray(leaf), compute_uv=False))
    scale = float(jnp.linalg.norm(updates["block"]["kernel"]))
    assert spread(updates["block"]["kernel"]) < 0.5 * scale
    assert float(jnp.abs(jnp.abs(updates["embed"]) - 1).max()) < 1e-2, "Adam's first step"


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("constant", {}, {10: 1, 110: 1}),
        ("cosine", {}, {10: 1, 60: 0.55, 110: 0.1}),
        ("cosine", {"end": 0.0}, {60: 0.5, 110: 0}),
        ("linear", {}, {10: 1, 60: 0.5, 110: 0}),
        ("linear", {"end": 0.2}, {60: 0.6, 110: 0.2}),
        ("inverse_sqrt", {}, {10: 1, 40: 0.5, 90: 1 / 3}),
        ("wsd", {}, {10: 1, 90: 1, 100: 0.5, 110: 0}),
        ("wsd", {"fall": 0.5}, {60: 1, 85: 0.5, 110: 0}),
    ],
)
def test_schedules_rise_and_then_are_what_their_names_say(name, options, wanted):
    fields = {"steps": 110, "warmup": 10, "lr": 2.0, "schedule": named(name, **options)}
    rate = optimizers.schedule(CONFIG.model_copy(update=fields))
    for step, share in ({0: 0, 5: 0.5} | wanted).items():
        assert float(rate(step)) == pytest.approx(2 * share, abs=1e-6), step
    flat = optimizers.schedule(CONFIG.model_copy(update=fields | {"warmup": 0}))
    assert float(flat(0)) == pytest.approx(2.0), "without a warm-up"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"optimizer": named("adam")},
            r"^optimizer\.name: no optimizer 'adam'; did you mean adamw",
        ),
        (
            {"optimizer": named("lion", b3=0.1)},
            r"^optimizer\.b3: lion takes no such option; choices: b1, b2$",
        ),
        ({"optimizer": named("lion", b1=1.5)}, r"^optimizer\.b1: 1\.5 must be 0\.0 or more, and"),
        ({"optimizer": named("sgd", nam="lion")}, r"^optimizer\.nam: sgd .*; did you mean name"),
        ({"optimizer": named("sgd", nesterov=1)}, r"^optimizer\.nesterov: 1 is not of type bool$"),
        ({"optimizer": named("lion", rate=1.0)}, r"^optimizer\.rate: lion takes no such option"),
        (
            {"schedule": named("cosin")},
            r"^schedule\.name: no schedule 'cosin'; did you mean cosine",
        ),
        ({"schedule": named("wsd", fall=2.0)}, r"^schedule\.fall: 2\.0 must be"),
    ],
)
def test_what_does_not_exist_is_refused_in_one_line(changes, message):
    with pytest.raises(FieldError, match=message) as refusal:
        optimizers.check(CONFIG.model_copy(update=changes))
    assert "\n" not in str(refusal.value)
    optimizers.check(CONFIG)  # control


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_a_moving_average_that_forgets_nothing_is_refused(name):
    """Adam divides it by 1 - 1, which is NaN at the second step."""
    options = optimizers.parameters(optimizers.OPTIMIZERS[name]).keys()
    exponents = {"b2"} if name == "adafactor" else set()
    for option in options & {"b1", "b2", "b3", "momentum"} - exponents:
        optimizers.check(CONFIG.model_copy(update={"optimizer": named(name, **{option: 0.999})}))
        wrong = CONFIG.model_copy(update={"optimizer": named(name, **{option: 1.0})})
        said = rf"^optimizer\.{option}: 1\.0 must be 0\.0 or more, and less than 1\.0$"
        with pytest.raises(FieldError, match=said):
            optimizers.check(wrong)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"schedule": {"name": "wsd"}}, 80),
        ({"schedule": {"name": "wsd", "fall": 0.5}}, 40),
        ({"schedule": {"name": "wsd"}, "warmup": 100}, 0),
        ({"schedule": {"name": "constant"}}, 100),
        ({}, 0),
        ({"schedule": {"name": "linear"}}, 0),
    ],
)
def test_the_step_to_extend_from_is_the_last_before_the_fall(changes, wanted):
    """A training of twice the steps has the same rates up to there, and at the next chunk others.
    A rate that falls from the warm-up on has no such step.
    """
    config = check(TrainConfig, {"steps": 100, "warmup": 10, "chunk": 20, **changes})
    step = optimizers.before_fall(config)
    assert step == wanted
    longer = config.model_copy(update={"steps": 200})
    same = optimizers.rates(config, range(100)) == optimizers.rates(longer, range(100))
    assert same[:step].all()
    if 0 < step < 100:
        assert not same[: step + 20].all(), "control"


def test_one_of_a_users_own_is_a_function(monkeypatch):
    for name in ("OPTIMIZERS", "SCHEDULES", "_ELEMENTWISE"):
        monkeypatch.setattr(optimizers, name, dict(getattr(optimizers, name)))

    @optimizers.register()
    def signed(rate, decay, momentum: float = 0.9):
        return optax.signum(rate, momentum)

    @optimizers.register_schedule()
    def halves(peak, steps, warmup, every: int = 10):
        return lambda step: peak * 0.5 ** (step // every)

    options = {"optimizer": named("signed", momentum=0.5), "schedule": named("halves", every=2)}
    config = CONFIG.model_copy(update={**options, "warmup": 0, "lr": 1.0})
    optimizers.check(config)
    assert not optimizers.optimizer(config).elementwise, "unless it says so"
    assert float(optimizers.schedule(config)(5)) == 0.25
    with pytest.raises(ValueError, match=r"^register: bad: its first arguments must be rate, dec"):

        @optimizers.register()
        def bad(lr, decay): ...

    with pytest.raises(ValueError, match=r"^register: bad: option 'b' needs a type and a default"):

        @optimizers.register(name="bad")
        def worse(rate, decay, b): ...


def test_each_has_its_source():
    for table in (optimizers.OPTIMIZERS, optimizers.SCHEDULES):
        for name, function in table.items():
            assert inspect.getdoc(function), name

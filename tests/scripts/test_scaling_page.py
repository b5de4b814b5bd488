"""The arithmetic of docs/scaling.md, on cases by hand, and FLOPs counted against the formula."""

import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from scripts import scaling, step_costs
from scripts.scaling import Chip
from scripts.step_costs import Cost, Setting

SMALL = Setting("small", 64, 4, 3, 32, 42, 8, 10, 3)
COST = Cost(parameters=1000, flops=2e6, activations=500, inputs=50, moved=9e6)
CHIP = Chip("chip", flops=1e9, memory=25_000, bandwidth=1e6, link=1e6)


def close(counted, formula):
    return abs(counted / formula - 1) < 0.15


@pytest.fixture(scope="module", autouse=True)
def traced_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_costs, "traced", functools.cache(step_costs.traced))
        yield


@pytest.mark.thorough
def test_flops_counted_are_those_of_the_formula():
    cost = step_costs.counted(SMALL)
    formula = step_costs.by_formula(SMALL, cost.parameters)
    assert close(cost.flops, formula)
    assert not close(cost.flops, formula / 3), "control: the forward pass alone"


@pytest.mark.thorough
def test_layers_are_alike():
    """Three layers, continued from one and two, are three layers traced, to 1e-4."""
    three = step_costs.traced(SMALL)
    same = functools.partial(np.allclose, three, rtol=1e-4)
    assert same(step_costs.counted(SMALL))
    assert not same(step_costs.counted(SMALL._replace(layers=2))), "control: one layer less"


def test_a_constant_that_is_broadcast_is_not_kept():
    x = jnp.ones(8)
    masked = lambda x: jnp.where(x > 0, 2 * x, 0).sum()
    assert step_costs.residual_bytes(masked, x) == 8, "the mask, and not the zeros"
    spread = lambda x: (x * jnp.broadcast_to(jnp.exp(x[:1]), 8)).sum()
    assert step_costs.residual_bytes(spread, x) == 32 + 32 + 4, "control: a value of x, broadcast"


def test_by_hand():
    # 8 rows on 2 chips: 18 x 1000 + 4 x 500; with FSDP (6 + 4 + 4 + 2) x 1000 + 4 x 500.
    assert scaling.held(SMALL, COST, 2, fsdp=False) == 20_000
    assert scaling.held(SMALL, COST, 2, fsdp=True) == 18_000
    assert scaling.least_chips(SMALL, COST, CHIP, 8, fsdp=False) == 1
    tight = CHIP._replace(memory=19_000)
    assert scaling.least_chips(SMALL, COST, tight, 8, fsdp=False) == 4
    assert scaling.least_chips(SMALL, COST, tight, 2, fsdp=False) is None
    # In 4 parts of a row for each chip, gradients twice: 22 x 1000 + 500; with `remat` of three
    # layers 50 + 500 / 3 of a row.
    assert scaling.held(SMALL, COST, 2, False, parts=4) == 22_500
    remat = scaling.held(SMALL, COST, 2, fsdp=True, parts=4, remat=True)
    assert remat == pytest.approx(20_000 + 50 + 500 / 3)
    wide = COST._replace(activations=3000)  # one part: 18 x 1000 + 8 x 3000, and 25,000 fit
    assert scaling.least_parts(SMALL, wide, CHIP, 1, False, remat=False) == 8
    assert scaling.least_parts(SMALL, wide, CHIP, 1, False, remat=True) == 4
    assert scaling.least_parts(SMALL, wide, tight, 1, False, remat=True) is None
    # 3 runs x 10 steps x 2 MFLOP over 2 chips at half of 1 GFLOP/s: 0.06 s.
    # And at a fifth of it 0.15 s.
    seconds = [3600 * hours for hours in scaling.hours(SMALL, COST, CHIP, 2)]
    assert seconds == pytest.approx([0.06, 0.15])
    # One program of 10 seeds: 10 x 2 (12,000 + 8 x 500) bytes at 1 MB/s, or 10 x 9 MB, ten times:
    # longer than 10 x 2 MFLOP.
    low, high = scaling.tiny_hours(SMALL, COST, CHIP, 2)
    assert (low * 3600, high * 3600) == pytest.approx((3.2, 900))


def test_communication_is_read_from_the_page():
    sent = scaling.sent_per_parameter(Path("docs/devices.md").read_text("utf-8"))
    assert sent["rows spread"] == pytest.approx(4, rel=0.01)
    assert sent["rows spread, FSDP"] == pytest.approx(8, rel=0.01)
    assert not scaling.sent_per_parameter("| rows | 1 |")

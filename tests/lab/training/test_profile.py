"""The profile of a training: the trace, its parts, and the table in the report."""

import json

import jax
import jax.numpy as jnp
import pytest

from posenc_jax.lab.report.profile import sections
from posenc_jax.lab.training.profile import (
    Operation,
    Part,
    op_names,
    parts,
    self_times,
    step_part,
    traced,
)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("jit(run)/while/body/jvp(Transformer)/block_1/query/dot_general", ("block/query", False)),
        ("jit(run)/transpose(jvp(Transformer))/block_0/attend/mul", ("block/attend", True)),
        ("jit(run)/jvp(Transformer)/Transformer._output/norm/mul", ("norm", False)),
        ("jit(run)/jvp(Transformer)/add", ("the rest of the model", False)),
        ("jit(run)/jvp(T)/checkpoint/rematted_computation/block_2/add", ("block", True)),
        ("jit(run)/while/body/jvp()/reduce_sum", ("loss", False)),
        ("jit(run)/while/body/update/jit(clip)/max", ("update", False)),
        ("jit(run)/while/body/cond/branch_1_fun/data/gather", ("data", False)),
        ("jit(run)/while/body/closed_call/update/tanh", ("update", False)),
        ("jit(run)/while/body/eval_jaxpr/update/tanh", ("update", False)),  # from JAX 0.11 on
        ("jit(run)/vmap()/concatenate", ("the rest", False)),
        ("", ("the rest", False)),
    ],
)
def test_an_operation_belongs_to_a_part(name, part):
    assert step_part(name) == part


def test_times_of_a_loop_are_those_of_what_is_inside_it():
    second = 1e9
    actual = [
        Operation("a", "while.1", 0, 5 * second),
        Operation("a", "mul.1", 1 * second, 2 * second),
        Operation("a", "mul.1", 3 * second, 1 * second),
        Operation("b", "add.1", 2 * second, 1 * second),
    ]
    times = self_times(actual)
    assert times == {"while.1": 2.0, "mul.1": 3.0, "add.1": 1.0}
    names = {"mul.1": "transpose(jvp(T))/mlp/mul", "add.1": "update/add"}
    assert parts(times, names) == [Part("mlp", 0.0, 3.0), Part("update", 1.0, 0.0)]


@pytest.mark.thorough
def test_a_traced_program_has_its_parts(tmp_path):
    """The scope with most of the work takes most of the time; the result is the program's."""

    def run(x, small, rate_N):
        def step(x, _):
            with jax.named_scope("large"):
                x = jnp.tanh(x @ x)
            with jax.named_scope("little"):
                return x, jnp.sin(small).sum()

        return jax.lax.scan(step, x, rate_N)

    program, x, rate_N = jax.jit(run), jnp.full((256, 256), 0.01), jnp.ones(3)
    trace = traced(tmp_path / "profile/it", program, x, x[:4, :4], rate_N)
    assert jnp.array_equal(trace[0], program(x, x[:4, :4], rate_N)[0])
    note = json.loads((tmp_path / "profile/it/parts.json").read_text())
    assert note["steps"] == 3
    first, *others = note["parts"]
    assert first[0] == "large"
    assert first[1] > sum(part[1] for part in others)
    (section,) = sections(tmp_path)
    grid = section.parts[1]
    assert grid.rows[0][0] == "large"
    assert sections(tmp_path / "none") == [], "control: a run without a profile"


def test_names_come_from_the_text_of_a_program():
    text = (
        '%fusion.3 = f32[4]{0} fusion(%a, %b), kind=kLoop, metadata={op_name="jit(f)/mul" id=7}\n'
    )
    assert op_names(text) == {"fusion.3": "jit(f)/mul"}

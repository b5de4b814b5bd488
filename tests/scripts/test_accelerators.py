"""Programs compiled ahead of time for accelerators: what is read from them, and the page."""

import importlib
import json
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas

from posenc_jax import make
from posenc_jax.backends import target
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.model import transformer
from scripts import compile_for
from scripts.accelerators import chips, limits, page, programs, rehearsal
from scripts.accelerators.compiled import (
    branches,
    bundles,
    communication,
    instructions,
    launches,
    loops,
    squares,
    visits,
)

COMPILER = Path(".venv-tpu/bin/python")  # made by `make .venv-tpu/.ready`
RECORD = Path("results/accelerators.json")
CHECKED = "attention/rope/kernel/forward,attention/t5/dense/forward"  # compile in seconds
PROGRAM = """
%fused_computation.1 (p: f32[8,512,512]) -> f32[8,512,512] {
  ROOT %inside = f32[8,512,512]{2,1,0} exponential(%p)
}

%body.2 (s: (f32[8,512])) -> (f32[8,512]) {
  %scores = f32[8,512,512]{1,2,0:T(8,128)} fusion(%a, %b), kind=kOutput, \
calls=%fused_computation.1, backend_config={"window_config":{"iteration_bounds":["1","3","2"]}}
  %gradients = f32[4,128]{1,0} all-reduce(%x), channel_id=1
}

ENTRY %main (x: f32[8,512]) -> f32[8,512] {
  %loop = (f32[8,512]) while(%t), condition=%cond, body=%body.2, \
backend_config={"known_trip_count":{"n":"9"}}
  %shards = f32[1024]{0} reduce-scatter(%y), channel_id=2, replica_groups={{0,1}}
  ROOT %last = f32[8,512]{1,0} copy(%g), backend_config={"x":{"iteration_bounds":["4"]}}
}
"""


def test_bundles_are_counted_by_loop(tmp_path):
    bundle = "     {n}   : > {{ %s1 = smov 0  ;;  %s2 = smov 1 }}\n"
    for name, count in {"scores": 5, "last": 7}.items():
        text = "".join(bundle.format(n=hex(n)) for n in range(count))
        (tmp_path / f"17-{name}-01-final_bundles.txt").write_text(text + "= a legend =\n")
    found = bundles(list(instructions(PROGRAM)), PROGRAM, tmp_path)
    assert found == {"outside": 7 * 4, "bodies": [[5 * 6, 9]], "kernels": {}}


@pytest.mark.parametrize(
    "named",
    [
        "branch_computations={%skip.5, %body.2}",
        "true_computation=%body.2, false_computation=%skip.5",
    ],
)
def test_a_branch_counts_for_the_loop_that_chooses_it(named):
    text = PROGRAM.replace("body=%body.2", "body=%around.3").replace(
        "ENTRY",
        f"""%skip.5 (s: (f32[8,512])) -> (f32[8,512]) {{
}}

%around.3 (s: (f32[8,512])) -> (f32[8,512]) {{
  %either = (f32[8,512]) conditional(%seen, %s, %s), {named}, metadata={{x="y"}}
}}

ENTRY""",
    )
    found = launches(list(instructions(text)))
    assert found["bodies"] == [[6 + 1 + 1, 9]]
    apart = launches(list(instructions(text.replace(named, "x=1"))))
    assert apart["outside"] > found["outside"], "control"


def test_a_gpu_starts_a_kernel_for_each_operation_of_each_pass():
    found = launches(list(instructions(PROGRAM)))
    assert found == {"outside": 1 + 4, "bodies": [[6 + 1, 9]], "kernels": {}}, "times windows"


def test_what_a_reduction_does_with_two_numbers_is_no_kernel():
    text = """
%sum.1 (a: f32[], b: f32[]) -> f32[] {
  ROOT %add.2 = f32[] add(%a, %b)
}

ENTRY %main.3 (p: f32[8,512]) -> f32[8] {
  ROOT %total.4 = f32[8]{0} reduce(%p, %zero), dimensions={1}, to_apply=%sum.1
}
"""
    assert launches(list(instructions(text)))["outside"] == 1
    called = text.replace("reduce(%p, %zero), dimensions={1}", "call(%p)")
    assert launches(list(instructions(called)))["outside"] == 2, "control"


def test_branches_of_a_kernel_are_its_largest_innermost_regions():
    edges = {0: "Start region 1", 10: "Start region 2", 150: "End region 2", 160: "Start region 3"}
    edges |= {400: "End region 3", 410: "Start region 4", 420: "End region 4", 450: "End region 1"}
    listing = lambda edges: "".join(
        f" {n:#x} : > {{ %s = smov 0 }} /* {edges.get(n, '')} */\n" for n in range(500)
    )
    assert branches(listing(edges)) == [141, 241]
    flat = {n: edge for n, edge in edges.items() if edge.endswith("1")}
    assert branches(listing(flat)) == [451], "control"


def test_loops_of_a_kernel_count_each_pass_and_are_no_branches():
    line = " {n:#x} {mark}: {deep} {{ {text} }} /* {edge} */\n"
    deep = lambda n: ">>" if 20 <= n < 220 and n != 40 else ">"  # a bundle inside may be a branch
    text = {218: "%s7_s1 = sadd.s32 16, %s8_s1", 30: "%s9_s2 = sadd.s32 8, %s8_s1"}
    text |= {219: "%p1_p2 = scmp.ge.s32.totalorder %s7_s1, 64 /* loop exit test */"}
    edge = {20: "Start region 1", 219: "End region 1", 220: "Start region 2", 340: "End region 2"}
    edge |= {350: "Start region 3", 560: "End region 3"}
    listing = lambda deep: "".join(
        line.format(
            n=n,
            mark="LB" * (n == 20),
            deep=deep(n),
            text=text.get(n, "%s = smov 0"),
            edge=edge.get(n, ""),
        )
        for n in range(600)
    )
    assert loops(listing(deep)) == 199 * 64 // 16
    assert branches(listing(deep)) == [121, 211]
    assert visits(listing(deep)) == [211 + round((199 * 64 // 16 + 121) / 12)]
    assert loops(listing(lambda n: ">")) == 0, "control"
    assert branches(listing(lambda n: ">")) == [200, 211], "control"
    assert visits(listing(lambda n: ">")) == [200, 211], "control"


def test_arrays_inside_of_fusions_are_not_counted():
    found = list(instructions(PROGRAM))
    assert squares(found, 512) == {"f32[8,512,512]": 1}
    assert squares(found, 513) == {}
    outside = PROGRAM.replace("calls=", "to_apply=")
    assert squares(list(instructions(outside)), 512) == {"f32[8,512,512]": 2}, "control"


def test_collectives_have_a_number_and_bytes():
    wanted = {"all-reduce": [1, 4 * 128 * 4, 4 * 128 * 4], "reduce-scatter": [1, 8192, 8192]}
    assert communication(PROGRAM) == wanted
    mesh = "mesh['seeds'=3,'rows'=2] {'rows'}"  # as JAX 0.12 prints it
    assert communication(PROGRAM.replace("{{0,1}}", mesh)) == wanted
    wider = communication(PROGRAM.replace("{{0,1}}", mesh.replace("{'", "{'seeds','")))
    assert wider["reduce-scatter"] == [1, 3 * 8192, 3 * 8192], "control"
    parts = """  %s = (f32[8]{0}, f32[32]{0}) all-gather-start(%x), channel_id=7
  %d = f32[32]{0} all-gather-done(%s)
  %again = f32[32]{0} all-gather(%x), channel_id=7
  %r = f32[16]{0} all-reduce-start(%y), channel_id=8
"""
    wanted = {"all-gather": [1, 128, 128], "all-reduce": [1, 64, 64]}
    assert communication(parts) == wanted
    several = "".join(
        f"  %r = f32[16]{{0}} all-reduce(%y), channel_id=1, to_apply=%{region}\n"
        for region in ("sum.1", "sum.2", "sum.1.clone")
    )
    assert communication(several) == {"all-reduce": [2, 128, 64]}, "sums that share a channel"
    other = communication(parts.replace("(%x), channel_id=7", "(%x), channel_id=9", 1))
    assert other["all-gather"] == [2, 256, 128], "control"


KERNEL = """
def double(x):
    def body(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]

    return pallas.pallas_call(body, out_shape=x)(x)
"""


def test_a_kernel_has_the_same_text_wherever_its_source_stands():
    def text(line):
        names = {"pallas": pallas}
        exec(compile("\n" * line + KERNEL, "kernel.py", "exec"), names)
        traced = jax.jit(names["double"]).trace(jax.ShapeDtypeStruct((8, 128), jnp.float32))
        return traced.lower(lowering_platforms=("tpu",)).as_text()

    field, before = "jax_traceback_in_locations_limit", jax.config.jax_traceback_in_locations_limit
    assert text(0) != text(5), "control"
    jax.config.update(field, int(chips.environment("v5e", "")[field.upper()]))
    try:
        assert text(0) == text(5)
    finally:
        jax.config.update(field, before)


def test_a_difference_above_a_tenth_is_told():
    committed = {"key": "a", "temporary": 100, "bundles": {"bodies": [50, 7]}}
    near = {"key": "b", "temporary": 109, "bundles": {"bodies": [46, 7]}}
    assert compile_for.differences(near, committed) == []
    far = {"key": "b", "temporary": 111, "bundles": {"bodies": [50, 7]}}
    assert compile_for.differences(far, committed) == ["/temporary: 111, committed 100"]
    assert compile_for.differences({"failed": "no memory"}, committed)


def test_a_limit_is_missed_by_the_worst_program():
    step = lambda most: {"collectives": {"all-reduce": [2, most, most]}, "temporary": 1}
    limit = next(one for one in limits.LIMITS if "all-reduce" in one.what)
    state = lambda programs: limits._row(limit, programs)[2:]
    near, far = {"step/t5/1/4/fsdp": step(1e6)}, {"step/t5/12/4/fsdp": step(1.1e6)}
    assert state(near) == ("1 MB (step/t5/1/4/fsdp)", "met")
    assert state(near | far) == ("1.1 MB (step/t5/12/4/fsdp, the most of 2)", "**missed**")
    failed = {"step/t5/12/4/fsdp": {"failed": "no memory"}}
    assert state(failed) == ("no number", "not known")


@pytest.mark.thorough
def test_an_experiment_says_what_it_runs_without_running_it():
    config = importlib.import_module("configs.dna").get_config()
    found = rehearsal.asked("dna", "rope")
    (_, task, train, _), (state, _, steps) = found.chunk, found.given
    assert (task.name, train.steps, steps) == ("reading_frame", config.train.steps, 100)
    assert int(state.step.max()) == 0, "nothing is trained"
    assert list(found.evaluations) == list(config.eval.lengths)


@pytest.mark.parametrize("backend", ["gpu", "tpu"])
def test_the_states_to_compile_for_have_shapes_whatever_the_backend(backend):
    model = transformer.build(ModelConfig(width=8, heads=2, layers=1), make("rope"), 5)
    with target.compile_for(backend):
        found = programs.states(model, TrainConfig(), seeds=3)
    assert {x.shape[0] for x in jax.tree.leaves(found)} == {3}


def test_the_page_is_that_of_the_raw_numbers():
    raw = json.loads(RECORD.read_text("utf-8"))
    assert page.page(raw) == Path("docs/accelerators.md").read_text("utf-8")


@pytest.mark.thorough
@pytest.mark.skipif(not COMPILER.exists(), reason="no compiler for TPUs: make .venv-tpu/.ready")
def test_programs_compile_as_recorded():
    command = [COMPILER, "scripts/compile_for.py", "v5e", f"--only={CHECKED}", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_page_counts_no_array_of_a_models_width_as_a_square():
    found = {"temporary": 0, "bytes": None, "flops": None, "bundles": {}, "collectives": {}}
    found["squares"] = {"bf16[8,2048,3072]": 2, "f32[12,2048,2048]": 1, "bf16[1,2048,24576]": 1}
    found["bundles"] = {"outside": 1, "bodies": [], "kernels": {}}
    row = lambda name: page._row(name, found, bundled=False)[page.COLUMNS.index("T x T")]
    assert row("step/rope/12/1/whole") == "2"
    assert row("attention/rope/kernel/forward") == "4", "control"

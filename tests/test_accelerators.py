"""Programs compiled ahead of time for accelerators: what is read from them, and the page."""

import json
import subprocess
from pathlib import Path

import pytest

from scripts import compile_for
from scripts.accelerators import page
from scripts.accelerators.compiled import bundles, communication, instructions, squares

COMPILER = Path(".venv-tpu/bin/python")  # made by `make .venv-tpu/.ready`
RECORD = Path("docs/accelerators.json")
CHECKED = "attention/nope/dense/forward,attention/t5/dense/forward"  # compile in seconds
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
  %loop = (f32[8,512]) while(%t), condition=%cond, body=%body.2
  %shards = f32[1024]{0} reduce-scatter(%y), channel_id=2
  ROOT %last = f32[8,512]{1,0} copy(%g), backend_config={"x":{"iteration_bounds":["4"]}}
}
"""


def test_bundles_are_counted_by_loop(tmp_path):
    bundle = "     {n}   : > {{ %s1 = smov 0  ;;  %s2 = smov 1 }}\n"
    for name, count in {"scores": 5, "last": 7}.items():
        text = "".join(bundle.format(n=hex(n)) for n in range(count))
        (tmp_path / f"17-{name}-01-final_bundles.txt").write_text(text + "= a legend =\n")
    found = bundles(list(instructions(PROGRAM)), PROGRAM, tmp_path)
    assert found == {"outside": 7 * 4, "bodies": [5 * 6], "kernels": {}}


def test_arrays_inside_of_fusions_are_not_counted():
    found = list(instructions(PROGRAM))
    assert squares(found, 512) == {"f32[8,512,512]": 1}
    assert squares(found, 513) == {}
    outside = PROGRAM.replace("calls=", "to_apply=")
    assert squares(list(instructions(outside)), 512) == {"f32[8,512,512]": 2}, "control"


def test_collectives_have_a_number_and_bytes():
    assert communication(PROGRAM) == {
        "all-reduce": [1, 4 * 128 * 4, 4 * 128 * 4], "reduce-scatter": [1, 4096, 4096]
    }  # fmt: skip


def test_a_difference_above_a_tenth_is_told():
    committed = {"key": "a", "temporary": 100, "bundles": {"bodies": [50, 7]}}
    near = {"key": "b", "temporary": 109, "bundles": {"bodies": [46, 7]}}
    assert compile_for.differences(near, committed) == []
    far = {"key": "b", "temporary": 111, "bundles": {"bodies": [50, 7]}}
    assert compile_for.differences(far, committed) == ["/temporary: 111, committed 100"]
    assert compile_for.differences({"failed": "no memory"}, committed)


def test_the_page_is_that_of_the_raw_numbers():
    raw = json.loads(RECORD.read_text("utf-8"))
    assert page.page(raw) == RECORD.with_suffix(".md").read_text("utf-8")


@pytest.mark.skipif(not COMPILER.exists(), reason="no compiler for TPUs: make .venv-tpu/.ready")
def test_programs_compile_as_recorded():
    command = [COMPILER, "scripts/compile_for.py", "v5e", f"--only={CHECKED}", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr

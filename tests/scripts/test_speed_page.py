"""The page about speed: its tables and its sentences follow from the raw numbers."""

import copy
import json

import pytest

from scripts import speed_page
from tests.support import ROOT

PAGE = (ROOT / "docs" / "speed.md").read_text("utf-8")


@pytest.fixture
def raw():
    return [json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))
            for name in ("benchmarks", "gpu")]  # fmt: skip


def test_the_committed_tables_are_those_of_the_raw_numbers(raw):
    blocks = speed_page.blocks(*raw)
    for name, text in blocks.items():
        begin, end = (mark.format(name) for mark in speed_page.MARKS)
        assert f"{begin}\n\n{text}\n\n{end}" in PAGE
    cpu, gpu = copy.deepcopy(raw)
    for results in cpu["contests"].values():
        ours = next(iter(results.values()))
        ours["seconds"] = [2 * seconds for seconds in ours["seconds"]]
    (record,) = gpu["attention"].values()
    record["found"]["posenc_jax, rope"]["forward/4096"] = [9.0]
    other = speed_page.blocks(cpu, gpu)
    assert {name for name in blocks if blocks[name] != other[name]} == set(blocks), "control"


def test_the_ratio_of_a_processor_is_that_of_the_fastest_program_that_computes_the_same(raw):
    cpu, gpu = raw
    rows = {line.split(" | ")[0]: line for line in speed_page.processors(cpu, gpu).splitlines()}
    assert len(rows) == 2 + 4
    step = cpu["contests"]["step, d 64, nope"]
    peer, _ = speed_page._fastest(step)
    slowed = {**step, peer: {**step[peer], "seconds": [99.0] * len(step[peer]["seconds"])}}
    assert speed_page._fastest(slowed)[0] != peer
    assert all("alone" not in speed_page._fastest(cpu["contests"][name])[0]
               for name in cpu["contests"] if name.startswith("step, "))  # fmt: skip


def test_what_was_reported_of_another_processor_is_said_as_reported():
    for by_width in speed_page.REPORTED.values():
        for width, ratios in by_width.items():
            span = " to ".join(f"{ratio:.2f}".removeprefix("0") for ratio in ratios)
            assert f"{span} at width {width}" in PAGE.replace("\nat", " at")
    assert "raw numbers are not stored" in PAGE


def test_the_readme_says_the_ratios_of_both_processors(raw):
    ratios = [ratio for width in (64, 256) for ratio in speed_page._step_ratios(raw[0], width)]
    (reported,) = speed_page.REPORTED.values()
    others = [1 / ratio for pair in reported.values() for ratio in pair]
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert f"takes {min(ratios):.1f} to {max(ratios):.1f} times as long as ours on an AMD" in readme
    least, most = f"{min(others):.2f}".removeprefix("0"), f"{max(others):.1f}"
    assert f"{least} to {most} times as long on an Intel" in readme

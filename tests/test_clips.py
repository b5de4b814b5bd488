"""Clips of frames, tones and text: their rows and what is refused; see also test_encoders.py."""

import json

import pytest

import experiments
from experiments.multimodal.config import rows as rows_of
from tests.refusing import config_of, refused


def test_a_method_of_one_axis_reads_a_clip_in_two_ways(tmp_path):
    config = config_of("multimodal", "rope,mrope,quick", seeds=1)
    assert [row for name in ("nope", "rope", "mrope") for row in rows_of(name)] == [
        ("nope", "index"), ("rope", "index"), ("rope on time", "time"), ("mrope", "all")
    ]  # fmt: skip
    config["train"].update(steps=2, chunk=2)
    config["eval"]["lengths"] = (4,)
    config["model"]["width"] = 16
    config["encoding"]["name"] = "mrope"
    experiments.prepare(config, str(tmp_path))()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary["results"]) == {"mrope", "mrope, shuffled"}
    assert summary["baselines"] == {"chance": 1 / 8}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task.name": "negation"}, ["task.name", "negation", "clips"]),
        ({"task.ids": "time"}, ["task.ids", "leave it out"]),
        ({"task.question": "colour"}, ["task.question", "colour", "column"]),
        ({"encoding.name": "mrope,axial"}, ["encoding.name", "axial", "2 axes"]),
        ({"eval.lengths": (4, 17)}, ["eval.lengths", "17", "2 to 16"]),
        ({"model.kind": "decoder"}, ["model.kind", "decoder", "encoder"]),
    ],
)
def test_what_clips_cannot_be_is_refused(changes, words):
    refused(config_of("multimodal"), changes, words)

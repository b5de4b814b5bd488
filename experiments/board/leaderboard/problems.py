"""The tasks of the board that tell position from content: how each is posed, what it asks for, and
what solves it without positions.

A problem is a task of `posenc_jax.lab.tasks` with options of its own, under a name of its own.
Sizes are those that fit the windows.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

NONE: Mapping[str, Any] = MappingProxyType({})
QUERIES = 8  # asked in a line of single answers

Skill = Literal["content", "offset", "order", "queue and stack", "counting", "state", "bag"]


class Problem(NamedTuple):
    """A task as the board poses it.

    task, options: of `posenc_jax.lab.tasks`, in training.
    skill: what it asks for.
    floor: what solves it without positions, in one line, as it was written before the runs. Rules
      that were found later have more of delay8, indirect_indexing and strings of bits; the page
      tells the floors that are measured.
    above: the floor of g: "rules", the best rule of content that looks for at most 3 tokens;
      "tables", the best table of the last 3 tokens, or such a rule if it has more and does not
      solve the problem.
    metric: the metric of g.
    tests: options of further tests, by name, beside the test that is as the training.
    overwrites: how many symbols of a copied answer are overwritten, see `overwritten`; 0: none.
    cancels: answers are also scored by what cancelling reflections predict, see `cancelling`.
    """

    task: str
    options: Mapping[str, Any]
    skill: Skill
    floor: str
    above: Literal["rules", "tables"] = "tables"
    metric: str = "token_accuracy"
    tests: Mapping[str, Mapping[str, Any]] = NONE
    overwrites: int = 0
    cancels: bool = False


PROBLEMS: dict[str, Problem] = {
    "copy_distinct": Problem(
        "copy", {"symbols": "distinct", "alphabet": 256}, "content",
        "suffix 1: each symbol occurs once, so the one before tells the next, 1.0",
        overwrites=3,
    ),
    "reverse_distinct": Problem(
        "reverse", {"symbols": "distinct", "alphabet": 256}, "content",
        "mirror 1: each symbol occurs once, so the one after tells the one before, 1.0",
        overwrites=3,
    ),
    # 256 keys, so that a line of 512 tokens can be filled.
    "recall_distinct": Problem(
        "associative_recall", {"keys": 256, "values": 16, "queries": QUERIES}, "content",
        "suffix 1: the value after the key, 1.0",
    ),
    "delay8": Problem(
        "delay", {"lag": 8, "alphabet": 2}, "offset",
        "none: what stands before tells nothing, .5", "rules",
    ),
    "indirect_indexing": Problem(
        "indirect_indexing", {"alphabet": 512, "reach": 8, "queries": QUERIES}, "offset",
        "none: the symbol is found by content, its neighbour by its offset alone", "rules",
    ),
    "recall_order": Problem(
        "recall_order", {"keys": 4, "values": 16}, "order",
        "suffix 1: the earliest value solves one mode, the newest the other, .53 of both",
        tests={"first": {"answers": "first"}, "last": {"answers": "last"}},
    ),
    "flip_flop": Problem(
        "flip_flop", {"ignore": 0.8}, "order",
        "after: what followed the newest write, 1.0",
        tests={"dense": {"ignore": 0.1}, "sparse": {"ignore": 0.98}},
    ),
    "copy_bits": Problem(
        "copy", {"alphabet": 2}, "queue and stack",
        "suffix 8: the last 8 bits repeat by chance the sooner the longer the line, 1.0 to .83",
        "rules", overwrites=8,
    ),
    "reverse_bits": Problem(
        "reverse", {"alphabet": 2}, "queue and stack",
        "mirror 8: as for copy_bits, 1.0 to .83", "rules", overwrites=8,
    ),
    # Of the stage "position-path", which poses it with other alphabets too.
    "reverse_letters": Problem(
        "reverse", {"alphabet": 26}, "queue and stack",
        "mirror 3: three letters seldom repeat, 1.0", "rules",
        tests={"doubled": {"symbols": "doubled"}, "changing": {"symbols": "changing"}},
        cancels=True,
    ),
    "count": Problem(
        "copy", {"symbols": "repeated", "alphabet": 26}, "counting",
        "a count of the bag, 1.0; rules of content never end the answer: exact match 0",
        metric="exact_match",
    ),
    "parity": Problem("parity", {}, "state", "a count of ones, modulo 2, 1.0; a guess .5"),
    "majority": Problem("majority", {}, "bag", "the more frequent bit of the bag, 1.0"),
}  # fmt: skip

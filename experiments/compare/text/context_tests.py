"""The tests of what a model takes from its context, at the lengths that the text has documents for.

They are those of `posenc_jax/lab/tasks/tokens/context.py`. Both tests of recall read the same
documents, so that they can be compared; these have more tokens than the longest length at which
the tests can be made.
"""

from typing import NamedTuple

from experiments.compare.text.config import Config
from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.tokens.context import END
from posenc_jax.options import FieldError

SAME_END, RECALL, ABSENT = TESTS = ("same_end", "recall", "recall_absent")
TOGETHER = ((SAME_END,), (RECALL, ABSENT))


class ContextTest(NamedTuple):
    """A test of context.

    task: the test; None: it cannot be made at any length.
    reasons: length -> why the test cannot be made there.
    """

    task: tasks.Task | None
    reasons: dict[int, str]


def context_tests(config: Config) -> dict[str, ContextTest]:
    """The tests by name, on at most `documents` documents, at the lengths of `eval`."""
    return {name: test for names in TOGETHER for name, test in _together(config, names).items()}


def _together(config: Config, names: tuple[str, ...]) -> dict[str, ContextTest]:
    """The tests of these names on the same documents."""
    lengths = sorted(config.eval.lengths, reverse=True)
    reasons: dict[int, str] = {}
    by_name: dict[str, tasks.Task] = {}
    for context in lengths:
        try:
            by_name = {name: _task(config, name, context) for name in names}
            break
        except FieldError as error:
            if error.path not in (("task", "context"), ("task", "test")):
                raise
            reasons[context] = error.reason
    tests = {}
    for name in names:
        task = by_name.get(name)
        least = 0 if task is None else task.least
        short = {n: f"{n} tokens are too few; {least} or more" for n in lengths if n < least}
        tests[name] = ContextTest(task, short | reasons)
    return tests


def _task(config: Config, name: str, context: int) -> tasks.Task:
    options = {"stretch": END * config.documents, "test": name, "context": context}
    return tasks.make(config.task.name, **{**config.task.options, **options})

"""Evaluates the weights of a run at other lengths, under other encodings, or on another task.

    python scripts/evaluate.py runs/rope_extrap --lengths=4096,8192
    python scripts/evaluate.py runs/rope_extrap --encodings=rope,yarn,ntk --lengths=128,2048
    python scripts/evaluate.py runs/extrap --encoding=alibi --lengths=4096   # one of its rows
    python scripts/evaluate.py runs/rope_extrap --step=500 --name=half       # a kept checkpoint
    python scripts/evaluate.py runs/rope_extrap --config.task.name=file:novel.txt   # another text
    python scripts/report.py runs/rope_extrap/evaluations/4096-8192          # its report again

The evaluation is a run of its own in RUN/evaluations/NAME, in the format of all runs; nothing else
in RUN is written. RUN need not be finished. A second call says that the evaluation is finished.
What cannot be evaluated is refused in one line, with exit status 2.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from experiments import job
from experiments.compare import loading
from experiments.sweep_file import overrides
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.flags import Flags
from posenc_jax.lab.runs import source
from posenc_jax.options import FieldError


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status, as of train.py."""
    parser = Flags(__doc__)
    parser.add_argument("run", type=Flags.path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--lengths", default="", metavar="N,N", help="by default those of the run")
    parser.add_argument("--encodings", default="", metavar="NAME,NAME",
                        help="that read the weights, as eval.variants")  # fmt: skip
    parser.add_argument("--encoding", default="", help="the trained one; by default all of the run")
    parser.add_argument("--step", type=int, help="of the checkpoint; by default the last")
    parser.add_argument("--name", default="", help="of the evaluation's folder")
    flags, rest = parser.parse_known_args(arguments)
    try:
        task = _task_fields(rest)
        config, workdir = loading.evaluation(
            flags.run, _numbers(flags.lengths), _words(flags.encodings), encoding=flags.encoding,
            step=flags.step, task=task, name=flags.name,
        )  # fmt: skip
    except ValueError as error:
        say(f"error: {error}", sys.stderr)
        return 2
    step = config["start"]["step"]
    if flags.step is None and step < source.stored_config(flags.run)[0]["train"]["steps"]:
        # The page shows sys.argv as its command, which without a step would evaluate a later one.
        sys.argv.append(f"--step={step}")
    return job.run(config, str(workdir), named=True)


def _task_fields(arguments: list[str]) -> dict[str, Any]:
    """The fields of the task. ValueError: another argument."""
    fields = overrides(arguments)
    for field in fields:
        if not field.startswith("task."):
            raise FieldError(
                f"--config.{field}",
                "an evaluation changes fields of the task alone, by --config.task.FIELD=VALUE; "
                "other methods read the weights by --encodings, other lengths by --lengths",
            )
    return {field.removeprefix("task."): value for field, value in fields.items()}


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _numbers(text: str) -> list[int]:
    words = _words(text)
    for word in words:
        if not word.isdecimal():
            raise FieldError("--lengths", f"{word!r} is not a whole number")
    return [int(word) for word in words]


if __name__ == "__main__":
    sys.exit(main())

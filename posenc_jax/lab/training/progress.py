"""Shows the progress of a long loop: a bar on a terminal, else a line from time to time."""

import math
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar


class Progress:
    """Shows step, loss, speed and time left; at the end the time that it took.

    Use as a context manager. It says "compiling" until the first update.

    If the console is no terminal, a line is printed at the first update, at the last step, and in
    between after `MOST` seconds, or after a tenth of the steps but at least `LEAST` seconds.
    """

    LEAST, MOST = 3.0, 15.0

    def __init__(
        self,
        total_steps: int,
        title: str,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total, self._title, self._clock = total_steps, title, clock
        self._console = console or Console()
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            expand=True,
            disable=not self._console.is_terminal or self._console.is_dumb_terminal,
            get_time=clock,
            speed_estimate_period=math.inf,
        )
        self._bar.add_task(title, total=total_steps, figures="compiling")
        self._shown = (0, -math.inf)  # step and time of the last line
        self._began = clock()

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._bar.stop()

    def update(self, step: int, loss: float | None = None, speed: Sequence[str] = ()) -> None:
        """Shows that `step` steps are done, the latest loss, and the words of `Throughput`, the
        first of them before the time left; if there are none, the steps per second.
        """
        (task,) = self._bar.tasks
        self._bar.update(task.id, completed=step)
        parts, ended = [] if loss is None else [f"loss {loss:.4f}"], step == self._total
        if task.speed:  # rich leaves out the first steps, which include compiling
            remaining = [] if ended else [f"{_clock_face(task.time_remaining or 0)} left"]
            parts += [speed[0] if speed else _rate(task.speed), *remaining]
        if ended:
            parts.append(f"{_clock_face(self._clock() - self._began)} in all")
        if task.speed:
            parts += speed[1:]
        figures = "  ".join(parts)
        self._bar.update(task.id, figures=figures)
        now, (last_step, last_time) = self._clock(), self._shown
        tenth = step - last_step >= self._total / 10
        long = now - last_time >= (self.LEAST if tenth else self.MOST)
        if self._bar.disable and (long or last_step < step == self._total):
            line = f"{self._title}: step {step}/{self._total}  {figures}"
            print(line.rstrip(), file=self._console.file, flush=True)
            self._shown = (step, now)


def _rate(steps_per_second: float) -> str:
    """Steps a second, or seconds a step of slow ones."""
    if steps_per_second < 0.95:
        return f"{1 / steps_per_second:.1f} s/step"
    return f"{steps_per_second:.{1 if steps_per_second < 1000 else 0}f} steps/s"


def _clock_face(seconds: float) -> str:
    minutes, seconds = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

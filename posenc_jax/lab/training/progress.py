"""Shows the progress of a long loop: a bar on a terminal, else a line from time to time."""

import math
import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

from posenc_jax.lab.hosts.console import say

NARROWEST = 4  # columns of the bar


class Progress:
    """Shows step, loss, speed and time left; at the end the time that it took.

    Use as a context manager. It says "compiling" until the first update. On a narrow terminal the
    counter and the bar stay, and of the numbers those that fit: first the loss, then the time.

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
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            expand=True,
            disable=not self._console.is_terminal or self._console.is_dumb_terminal,
            get_time=clock,
            speed_estimate_period=math.inf,
        )
        room = self._console.width - self._taken()
        short = title if room >= len(title) else f"{title[: max(room - 1, 0)]}…"
        figures = self._fitting({"compiling": 0}, len(short))
        self._bar.add_task(short, total=total_steps, figures=figures)
        self._shown = (0, -math.inf)  # step and time of the last line
        self._began = clock()

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._bar.stop()

    def update(self, step: int, loss: float | None = None, speed: Sequence[str] = ()) -> None:
        """Shows that `step` steps are done, the latest loss in nats, and the words of `Throughput`,
        the first of them before the time left; if there are none, the steps per second.
        """
        (task,) = self._bar.tasks
        self._bar.update(task.id, completed=step)
        # A number -> its rank, by which it is left out.
        parts: dict[str, int] = {} if loss is None else {f"loss {loss:.4f} nats": 0}
        ended = step == self._total
        if task.speed:  # rich leaves out the first steps, which include compiling
            parts[speed[0] if speed else _rate(task.speed)] = 2
            if not ended:
                parts[f"{_clock_face(task.time_remaining or 0)} left"] = 1
        if ended:
            parts[f"{_clock_face(self._clock() - self._began)} in all"] = 1
        if task.speed:
            parts |= {word: rank for rank, word in enumerate(speed[1:], 3)}
        self._bar.update(task.id, figures=self._fitting(parts, len(task.description)))
        now, (last_step, last_time) = self._clock(), self._shown
        tenth = step - last_step >= self._total / 10
        long = now - last_time >= (self.LEAST if tenth else self.MOST)
        if self._bar.disable and (long or last_step < step == self._total):
            line = f"{self._title}: step {step}/{self._total}  {'  '.join(parts)}"
            say(line.rstrip(), self._console.file)
            self._shown = (step, now)

    def _taken(self) -> int:
        """The columns of the counter, the narrowest bar, and the spaces between them."""
        return len(f"{self._total}/{self._total}") + NARROWEST + 4

    def _fitting(self, parts: Mapping[str, int], title: int) -> str:
        """Returns the numbers that fit beside a title of so many columns: the lowest ranks."""
        room, shown = self._console.width - self._taken() - title, dict(parts)
        while shown and len("  ".join(shown)) > room:
            del shown[max(shown, key=shown.__getitem__)]
        return "  ".join(shown)


def _rate(steps_per_second: float) -> str:
    """Steps a second, or seconds a step of slow ones."""
    if steps_per_second < 0.95:
        return f"{1 / steps_per_second:.1f} s/step"
    return f"{steps_per_second:.{1 if steps_per_second < 1000 else 0}f} steps/s"


def _clock_face(seconds: float) -> str:
    minutes, seconds = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

"""Shows the progress of a long loop: a bar on a terminal, else a line from time to time."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar


class Progress:
    """Shows step, loss, steps a second and time left; use as a context manager.

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
        )
        self._task = self._bar.add_task(title, total=total_steps, figures="starting")
        self._start = (0, clock())
        self._shown: tuple[int, float] | None = None

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._bar.stop()

    def update(self, step: int, loss: float | None = None) -> None:
        """Shows that `step` steps are done, and the latest loss, if there is one."""
        now = self._clock()
        figures = self._figures(step, now, loss)
        self._bar.update(self._task, completed=step, figures=figures)
        if self._bar.disable and self._due(step, now):
            print(
                f"{self._title}: step {step}/{self._total}  {figures}",
                file=self._console.file,
                flush=True,
            )
            self._shown = (step, now)
        if self._start[0] == 0:
            # The first steps include compiling; the rate is measured from here on.
            self._start = (step, now)

    def _due(self, step: int, now: float) -> bool:
        if self._shown is None:
            return True
        last_step, last_time = self._shown
        if step >= self._total:
            return step > last_step
        waited = now - last_time
        return waited >= self.MOST or (
            waited >= self.LEAST and step - last_step >= self._total / 10
        )

    def _figures(self, step: int, now: float, loss: float | None) -> str:
        done, spent = step - self._start[0], now - self._start[1]
        parts = [] if loss is None else [f"loss {loss:.4f}"]
        if done > 0 and spent > 0:
            rate = done / spent
            parts.append(f"{rate:.1f} steps/s" if rate < 1000 else f"{rate:.0f} steps/s")
            parts.append(f"{_clock_face((self._total - step) / rate)} left")
        return "  ".join(parts)


def _clock_face(seconds: float) -> str:
    minutes, seconds = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

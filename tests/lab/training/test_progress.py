"""Progress on a terminal and elsewhere, with a clock of its own."""

import io
import re

import pytest
from rich.console import Console

from posenc_jax.lab.training.progress import Progress


def show(terminal, seconds, steps=100, **environment):
    """What `steps` updates, each of `seconds` by the clock, print."""
    now = [0.0]
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=90, _environ=environment)
    with Progress(steps, "rope", console, clock=lambda: now[0]) as progress:
        for step in range(1, steps + 1):
            now[0] += seconds
            progress.update(step, 1 / step)
    return out.getvalue()


def test_elsewhere_than_on_a_terminal_lines_are_plain_and_few():
    text = show(terminal=False, seconds=0.5)
    lines = text.splitlines()
    assert "\x1b" not in text
    assert "\r" not in text
    assert lines[0].startswith("rope: step 1/100  loss 1.0000 nats")
    assert lines[-1] == "rope: step 100/100  loss 0.0100 nats  2.0 steps/s  0:50 in all"
    assert 5 < len(lines) <= 12
    # The control: on a terminal the same updates do draw with control codes.
    assert "\x1b" in show(terminal=True, seconds=0.5)


def test_a_short_loop_prints_its_first_and_last_line_only():
    assert len(show(terminal=False, seconds=0.01).splitlines()) == 2


def test_a_slow_loop_prints_before_a_tenth_is_done():
    text = show(terminal=False, seconds=10.0)
    assert "step 3/100" in text
    assert text.splitlines()[-1].endswith("loss 0.0100 nats  10.0 s/step  16:40 in all")


def test_a_line_ends_with_what_it_shows():
    out = io.StringIO()
    with Progress(9, "evaluate", Console(file=out)) as progress:
        progress.update(1)
    assert out.getvalue() == "evaluate: step 1/9\n"


def test_time_left_counts_without_the_first_steps():
    now = [0.0]
    out = io.StringIO()
    with Progress(100, "rope", Console(file=out), clock=lambda: now[0]) as progress:
        for step, at in ((10, 60.0), (20, 70.0), (30, 80.0)):  # compiling took a minute
            now[0] = at
            progress.update(step, 1.0)
    assert out.getvalue().splitlines()[-1].endswith("1.0 steps/s  1:10 left")


def test_the_bar_shows_loss_rate_and_time_left():
    text = show(terminal=True, seconds=1.0)
    assert "100/100" in text
    assert "loss 0.0100 nats  1.0 steps/s  1:40 in all" in text
    assert "compiling" in text, "before the first update"


def test_the_speed_of_a_training_stands_around_the_time_left_once_it_is_known():
    now, out = [0.0], io.StringIO()
    words = ["81.3 ms/step", "15.2k tokens/s", "waits 0%"]
    with Progress(100, "rope", Console(file=out), clock=lambda: now[0]) as progress:
        for step, at in ((10, 60.0), (20, 70.0), (30, 80.0)):
            now[0] = at
            progress.update(step, 1.0, words)
    first, *_, last = out.getvalue().splitlines()
    assert first == "rope: step 10/100  loss 1.0000 nats", "its time is that of compiling"
    assert last.endswith("loss 1.0000 nats  81.3 ms/step  1:10 left  15.2k tokens/s  waits 0%")


def test_a_dumb_terminal_gets_lines():
    assert "\x1b" not in show(terminal=True, seconds=1.0, TERM="dumb")


WORDS = ["81.3 ms/step", "15.2k tokens/s", "0.45 GiB", "waits 0%"]


def frames(width, title="train rope", steps=4000):
    """The lines that a terminal of this width shows one after another, without their colours."""
    now, out = [0.0], io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, _environ={})
    with Progress(steps, title, console, clock=lambda: now[0]) as progress:
        for step in range(500, steps + 1, 500):
            now[0] += 60.0
            progress.update(step, 2.5, WORDS)
            progress._bar.refresh()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    return [line for line in re.split(r"[\r\n]+", plain) if line]


@pytest.mark.parametrize("title", ["train rope", "fine-tune randomized+ntk_by_parts+a_long_name"])
def test_at_60_columns_the_counter_and_the_bar_stay_and_the_numbers_that_fit(title):
    lines = frames(60, title)
    assert len(lines) > 5
    for line in lines:
        assert len(line) <= 60
        assert re.search(r" +\d+/4000 ?", line)
        assert "━" * 4 in re.sub("[╸╺]", "━", line)
    assert any("2000/4000" in line for line in lines)
    assert lines[-1].startswith(title[:9])
    shown = lines[-1].split("4000/4000")[1].split("  ")
    assert all(word.strip() in ("", "loss 2.5000 nats", "8:00 in all", *WORDS) for word in shown)


def test_a_number_has_its_unit_and_the_loss_stays_longest():
    assert frames(60)[-1].endswith("loss 2.5000 nats  8:00 in all")
    assert frames(45)[-1].rstrip().endswith("loss 2.5000 nats")
    assert "waits 0%" in frames(120)[-1], "control: a wide terminal shows all"

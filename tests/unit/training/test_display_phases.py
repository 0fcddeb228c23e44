"""What a terminal shows between two steps."""

import io

from rich.console import Console

from palestra.training.display import LineDisplay, LiveDisplay


def test_a_phase_that_a_check_interrupts_is_one_line():
    out = io.StringIO()
    display = LineDisplay(10, Console(file=out))
    display.phase("warm start: imitating them")
    display.begin_eval("warm start, update 5", 20)
    display.note("warm start: 30.0% of training tasks after update 5")
    display.phase("warm start: imitating them")
    assert out.getvalue().splitlines() == [
        "warm start: imitating them",
        "warm start: 30.0% of training tasks after update 5",
    ]


def test_the_bar_of_a_phase_moves_and_has_no_empty_line_above():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    display = LiveDisplay(10, 4, console)
    display.phase("warm start: imitating them")
    display.progress(3, 40)
    out = io.StringIO()
    Console(file=out, width=100).print(display._render())
    display.close()
    (line,) = out.getvalue().splitlines()
    assert line.startswith("warm start: imitating them")
    assert line.endswith(" 3/40")

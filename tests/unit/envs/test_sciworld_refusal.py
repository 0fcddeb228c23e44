"""What an agent is told of an action that SciWorld's simulator does not understand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.sciworld.refusal import NOT_UNDERSTOOD, explained

LOOK = """\
This room is called the kitchen. In it, you see:
\ta glass jar (containing a substance called sodium chloride)
You also see:
\tA door to the hallway (that is open)"""
HELD = "In your inventory, you see:\n\tan orange"


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("quit", "'quit' is no action: it must begin with look around, inventory,"),
        ("look", "'look' is no action"),
        ("go to bathroom", "There is no bathroom here."),
        ("teleport to bathroom", "There is no bathroom here."),
        ("open door to the bathroom", "There is no door to the bathroom here."),
        ("move orange to green box", "There is no green box here."),
        ("use thermometer on glass jar", "There is no thermometer here."),
        ("eat the orange", NOT_UNDERSTOOD),
        ("connect glass jar terminal 1 to orange", NOT_UNDERSTOOD),
        (
            "look at glass jar (containing sodium chloride)",
            f"{NOT_UNDERSTOOD} Name things without what stands in brackets.",
        ),
        ("focus on " + "x" * 100, f"There is no {'x' * 60} ... here."),
    ],
)
def test_what_is_the_matter_with_an_action(action, reason):
    said = explained(action, LOOK, HELD)
    assert said.startswith(reason)
    assert said.endswith(" You are in the kitchen. Doors: hallway (open).")
    assert "teleport" not in said  # not everybody may


@given(st.text(), st.text(), st.text())
def test_an_explanation_is_found_for_anything(action, look, inventory):
    assert explained(action, look, inventory)

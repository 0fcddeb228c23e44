"""The tasks of MiniWoB++ that can be solved with text alone, by category."""

from __future__ import annotations

from collections.abc import Mapping


def _by_name(names_of: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for group, names in names_of.items():
        found |= dict.fromkeys(names.split(), group)
    return found


_BY_CATEGORY = {
    "click": """
        click-button click-button-sequence button-delay click-link click-test click-test-2 \
click-test-transfer click-widget click-pie
        click-pie-nodelay focus-text focus-text-2 unicode-test ascending-numbers click-dialog \
click-dialog-2""",
    "choose": """
        choose-list click-checkboxes click-checkboxes-large click-checkboxes-soft \
click-checkboxes-transfer click-option
        click-scroll-list odd-or-even find-greatest""",
    "menu": """
        click-collapsible click-collapsible-nodelay click-collapsible-2 \
click-collapsible-2-nodelay click-menu click-menu-2 click-tab
        click-tab-2 click-tab-2-easy click-tab-2-medium click-tab-2-hard navigate-tree""",
    "type": """
        enter-text enter-text-2 enter-text-dynamic enter-password enter-date enter-time \
text-transform copy-paste copy-paste-2
        use-autocomplete use-autocomplete-nodelay terminal""",
    "form": """
        login-user login-user-popup form-sequence form-sequence-2 form-sequence-3 multi-layouts \
multi-orderings sign-agreement
        choose-date choose-date-easy choose-date-medium choose-date-nodelay book-flight \
book-flight-nodelay order-food buy-ticket
        use-slider use-slider-2 use-spinner""",
    "read": """
        find-word read-table read-table-2 scroll-text scroll-text-2 search-engine phone-book""",
    "reason": """
        simple-algebra simple-arithmetic guess-number generate-number tic-tac-toe""",
    "email": """
        email-inbox email-inbox-delete email-inbox-forward email-inbox-forward-nl \
email-inbox-forward-nl-turk email-inbox-important
        email-inbox-nl-turk email-inbox-noscroll email-inbox-reply email-inbox-star-reply""",
    "social": """
        social-media social-media-all social-media-some""",
}

TASKS = _by_name(_BY_CATEGORY)
"""By name: the task's category."""
CATEGORIES = tuple(_BY_CATEGORY)

_LEFT_OUT = {
    "to be seen": """
        bisect-angle circle-center click-color click-shades click-shape count-shape count-sides \
find-midpoint grid-coordinate
        identify-shape number-checkboxes right-angle use-colorwheel use-colorwheel-2 \
visual-addition""",
    "to be dragged or drawn": """
        daily-calendar drag-box drag-circle drag-cube drag-items drag-items-grid drag-shapes \
drag-shapes-2 drag-single-shape
        drag-sort-numbers draw-circle draw-line highlight-text highlight-text-2 resize-textarea \
text-editor""",
    "against the clock": """
        chase-circle hot-cold hover-shape moving-items simon-says stock-market""",
}

LEFT_OUT = _by_name(_LEFT_OUT)
"""By name: why the task cannot be solved with text."""

OWN_WORDS = """
    Task: The task is over. click scroll [down] [up] button textbox tab dialog tabpanel generic \
collapsed expanded selected focused
    There no element on the page. Expected"""
"""The words of clicks and of all tasks' observations."""
FEW_WORDS = {
    "click-test-2": 'Click button ONE. "ONE" "TWO"',
    "click-test-transfer": 'Click button ONE. TWO. "ONE" "TWO"',
    "click-button-sequence": 'Click button ONE, then click button TWO. "ONE" "TWO"',
    "click-button": """
        Click on the "submit" "okay" "ok" "yes" "no" "cancel" "next" "previous" "Submit" "Okay" \
"Ok" "Yes" "No" "Cancel" "Next"
        "Previous" button.""",
    "focus-text-2": "Focus into the 1st 2nd 3rd input textbox.",
    "click-tab": 'Click on Tab #1. #2. #3. "Tab #1" #2" #3"',
    "click-dialog-2": (
        'Click the button in the dialog box labeled "x". "Cancel". "OK". "Close" "Cancel" "OK"'
    ),
}
"""By task: the words of its goal and of its clickable elements, for models with a word-level
tokenizer.
"""

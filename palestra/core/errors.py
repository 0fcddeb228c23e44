"""Errors that a user can fix.

Their message is all there is to say: the command line prints it without a traceback.
"""

from __future__ import annotations


class UserError(Exception):
    """A mistake that a user can fix. Its message says what was given, what was expected and what to
    do.
    """


class ConfigError(UserError, ValueError):
    """A wrong setting or argument. One line has its name, its value, and what would be valid."""

"""Errors that a user can fix.

Their message is all there is to say: the command line prints it without a traceback.
"""

from __future__ import annotations


class UserError(Exception):
    """Says what was given, what was expected and what to do."""


class ConfigError(UserError, ValueError):
    """One line: the setting, its value, and what would be valid."""

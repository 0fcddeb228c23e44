"""Which errors are for the user to mend: their message is all there is to say."""

from __future__ import annotations


def is_users_to_mend(error: Exception) -> bool:
    """Errors whose message is all there is to say; others come with a traceback."""
    mendable = "UnknownName ConfigError BadCheckpoint TemplateError DataError Diverged EngineFailed ReplayError FileFault IndexFault"
    others = (
        "LaunchFailed CannotWrite CannotRead FolderInUse Collapsed AllBroke Forked BadModel BadEnvironment ReportError Unreadable BadToken"
    )
    return type(error).__name__ in f"{mendable} {others}".split()

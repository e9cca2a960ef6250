"""The error of what a user can mend: a file, a field, an option."""

from __future__ import annotations


class UserError(ValueError):
    """Raised for a user's wrong input; the message names file, line, field and value.

    Commands print it in one line and exit with code 2. Every other exception is a mistake of ours
    and keeps its traceback. Where a library reads a user's file, its errors become this one.
    """

"""Reports missing libraries of optional extras in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turngraph.configs.user_error import UserError


@contextmanager
def extra(name: str, needed_by: str) -> Iterator[None]:
    """Report a failed import of an optional extra's library inside this context.

    Args:
        name: the extra in ``pyproject.toml``, such as ``memory``.
        needed_by: subject and verb for the message: ``memory graphs need``.

    Raises:
        UserError: a library is not installed; says what to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or str(error)).partition(".")[0]
        message = f"{needed_by} {library}: pip install 'turngraph[{name}]'"
        raise UserError(message) from None

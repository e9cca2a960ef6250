"""How every command line of the project begins and fails."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable

EXIT_BAD_INPUT = 2


def run_cli(main: Callable[[], None]) -> None:
    """Run a command: log to stderr; what a user gave wrong ends in one line and exit code 2."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    # what libraries tell themselves about their next version is no news to a user
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    try:
        main()
    except ValueError as error:
        message = " ".join(str(error).split("\n"))  # some libraries' reasons have several lines
        print(f"error: {message}", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise SystemExit(130) from None

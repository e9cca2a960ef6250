"""Process that answers one SPARQL query: JSON request on standard input, JSON lines as output."""

from __future__ import annotations

import json
import resource
import sys

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.ontology.rdf import answer_request


def main() -> None:
    """Read a request, and print ``ready`` and the reply, or an error."""
    asked = json.loads(sys.stdin.readline())
    try:
        for reply in answer_request(asked):
            print(json.dumps(reply), flush=True)
            _limit_memory(asked["memory"])  # the graph is loaded now
    except UserError as error:
        print(json.dumps({"error": str(error)}), flush=True)


def _limit_memory(more: int) -> None:
    """Limit this process to ``more`` further bytes; an allocation beyond the limit ends it."""
    unit = 1 if sys.platform == "darwin" else 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    resource.setrlimit(resource.RLIMIT_DATA, (used + more, used + more))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()

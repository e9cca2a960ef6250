"""Process that answers one SPARQL query: a request on standard input, JSON lines on the output."""

from __future__ import annotations

import json
import sys

from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.ontology.rdf import answer_request


def main() -> None:
    """Read a request and print ``ready`` and the reply, or an error."""
    asked = json.loads(sys.stdin.readline())
    try:
        for reply in answer_request(asked):
            print(json.dumps(reply), flush=True)
    except UserError as error:
        print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    main()

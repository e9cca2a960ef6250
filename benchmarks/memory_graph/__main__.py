"""Starts a benchmark of the memory graph: ``retrieval``, ``answers`` and others.

python -m turngraph.benchmarks.memory_graph retrieval --data FOLDER
python -m turngraph.benchmarks.memory_graph answers [--data FOLDER] [--reader CHECKPOINT]
python -m turngraph.benchmarks.memory_graph endings [--trained] [--output FILE]
python -m turngraph.benchmarks.memory_graph questions --anchors FILE ... [--output FILE]
python -m turngraph.benchmarks.memory_graph reader_questions --input FILE ... --output FOLDER
python -m turngraph.benchmarks.memory_graph extraction --input FILE
"""

import sys

from turngraph.configs.user_error import UserError
from turngraph.data.cli import run_cli


def main() -> None:
    """Run one benchmark, which may need the extra ``memory``.

    Raises:
        UserError: there is no such benchmark, or a library is not installed.
    """
    command, *argv = sys.argv[1:] or ["--help"]
    if command == "retrieval":
        from turngraph.benchmarks.memory_graph import memory_retrieval

        memory_retrieval.main(argv)
    elif command == "answers":
        from turngraph.benchmarks.memory_graph import answers

        answers.main(argv)
    elif command == "endings":
        from turngraph.benchmarks.memory_graph import ending_training

        ending_training.main(argv)
    elif command == "questions":
        from turngraph.benchmarks.memory_graph import question_training

        question_training.main(argv)
    elif command == "reader_questions":
        from turngraph.benchmarks.memory_graph import reader_questions

        reader_questions.main(argv)
    elif command == "extraction":
        from turngraph.benchmarks.memory_graph import extraction

        extraction.main(argv)
    elif command in ("-h", "--help"):
        print(__doc__)
    else:
        known = "retrieval, answers, endings, questions, reader_questions or extraction"
        raise UserError(f"{command!r} given, must be {known}")


if __name__ == "__main__":
    run_cli(main)

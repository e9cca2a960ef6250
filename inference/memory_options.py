"""Types of the memory commands' options, and the options of ``turngraph memory ask``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from turngraph.configs.shipped import READER
from turngraph.configs.user_error import UserError
from turngraph.data.memory_graph.times import parse_time
from turngraph.inference.model_options import check_model_options

if TYPE_CHECKING:  # needs an extra
    from turngraph.data.memory_graph.plan.steps import PlanSettings
    from turngraph.data.memory_graph.recall.recall import NodeLetter, RecallSettings
    from turngraph.data.memory_graph.recall.recollection import Mode

MIXTURE = "BeamSearch + WaterCircles"
EXTRACTORS = ("rules", "lm", "endpoint", "given")


def positive(text: str) -> int:
    """Parse a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a whole number from 1")
    return int(text)


def row_id(text: str) -> int:
    """Parse the id of an episode or the key of a fact, also in its printed form: "#8"."""
    number = int(text.removeprefix("#"))
    if not 0 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} given, nothing has such a number")
    return number


def time_option(text: str) -> str:
    """Parse a time."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} given: {error}") from None


def spoken_time(text: str) -> str:
    """Check a time whose zone is kept."""
    time_option(text)
    return text


def extractor_option(text: str) -> str:
    """Check the name of an extractor; of spaCy's pipelines only that one is named."""
    is_spacy = text.startswith("spacy:") and text != "spacy:"
    if text not in EXTRACTORS and not is_spacy:
        known = ", ".join(EXTRACTORS)
        raise argparse.ArgumentTypeError(
            f"{text!r} given, must be one of {known} or spacy:PIPELINE"
        )
    return text


@dataclass(frozen=True)
class AskOptions:
    """Options of ``turngraph memory ask``, as the command line names them.

    Args:
        as_of: ISO time (a year, a month, ...), at the end of which facts have to hold; None: now.
        num_facts: maximum number of facts.
        mixture: traversals, joined by +.
        forbidden: letters of node types that no traversal walks to.
        settings: settings of the traversals, such as ``BeamSearch.max_depth=3``.
        min_similarity: least cosine of a fact.
        plan: what finds the steps of a plan: ``rules``, ``lm`` or ``endpoint``; None: no plan.
        steps, clues: most steps of a plan, most queries of a step; None: the default.
        over: what is ranked: ``facts``, ``episodes``, or ``both`` fused; None: ``facts`` where a
            plan or an option of traversals is given, else ``both``.
        embedder: name of the sentence encoder.
        no_embed: compare words, without a sentence encoder.
        as_json: print one JSON object a question.
        themes: recall facts theme by theme.
        compute: compute the answer where a plan can.
        compute_by: ``lm`` or ``endpoint`` plans computed answers that the rules cannot plan; None:
            only the rules plan.
        endpoint, base: URL of a copy of the graph on a server, and the base of its IRIs; None: no
            copy.
        show_sparql: print the queries of a computed answer.
        ontology: file of an ontology; None: the package's.
        alone: use that ontology without the package's.
        reader: checkpoint that answers questions, and the steps of plans; None: nothing answers.
        abstain_below: confidence below which the reader's answers are withheld; None: the
            checkpoint's own threshold.
        models: options of language models: ``model``, ``device`` and those of ``SERVER_OPTIONS``;
            None: not given.

    Raises:
        UserError: options exclude each other, or one lacks another that it needs.
    """

    as_of: str | None
    num_facts: int
    mixture: str
    forbidden: Sequence[NodeLetter]
    settings: Sequence[str]
    min_similarity: float
    plan: str | None
    steps: int | None
    clues: int | None
    over: Literal["both", "facts", "episodes"] | None
    embedder: str
    no_embed: bool
    as_json: bool
    themes: bool
    compute: bool
    compute_by: str | None
    endpoint: str | None
    base: str | None
    show_sparql: bool
    ontology: str | None
    alone: bool
    reader: str | None
    abstain_below: float | None
    models: Mapping[str, str | float | None]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> AskOptions:
        """Return the options of a command line; those that are no field belong to a model.

        The packaged reader answers unless another one, ``--no_reader``, ``--no_embed`` (no model)
        or ``--plan`` (its planner answers) is given.
        """
        names = {field.name for field in fields(cls)}
        own = {name: value for name, value in given.items() if name in names}
        models = {name: value for name, value in given.items() if name not in names}
        without = models.pop("no_reader") or own["no_embed"] or own["plan"] is not None
        if own["reader"] is None and not without:
            own["reader"] = READER
        return cls(**own, models=models)

    def __post_init__(self) -> None:
        walks = self.mixture != MIXTURE or bool(self.settings)
        if sum((self.themes, self.compute, self.plan is not None)) > 1:
            raise UserError("--plan, --themes and --compute: give one of them")
        if self.over is not None and (self.themes or self.compute):
            raise UserError("--over cannot be given with --themes or --compute")
        if self.plan is None and self.limits:
            raise UserError("--steps and --clues need --plan")
        if self.themes and (self.forbidden or walks):
            raise UserError("--themes walks no triplets: remove --set, --mixture and --forbidden")
        if self.over == "both" and (walks or self.forbidden or self.plan is not None):
            raise UserError(
                "--over both cannot be given with --mixture, --set, --forbidden or --plan"
            )
        if self.over == "episodes" and self.mixture != MIXTURE:
            raise UserError("--over episodes ranks by ppr: remove --mixture")
        if self.mode == "episodes" and self.min_similarity:
            raise UserError("--over episodes does not rank by cosines: remove --min_similarity")
        computing = self.compute_by, self.endpoint, self.base, self.ontology
        if not self.compute and (self.show_sparql or self.alone or any(computing)):
            raise UserError(
                "--show_sparql, --ontology, --alone, --compute_by, --endpoint and --base need "
                "--compute"
            )
        if self.abstain_below is not None and self.reader is None:
            raise UserError("--abstain_below needs a reader: give --reader")
        check_model_options(self.plan, self.models, self.compute_by)

    @property
    def mode(self) -> Mode:
        """How questions are asked."""
        if self.plan is not None:
            return "plan"
        if self.themes:
            return "themes"
        walks = self.mixture != MIXTURE or bool(self.forbidden or self.settings)
        return self.over or ("facts" if walks else "both")

    @property
    def limits(self) -> dict[str, Any]:
        """Limits of a plan that are given, as fields of ``PlanSettings``."""
        given = {"max_steps": self.steps, "max_clues": self.clues}
        return {name: value for name, value in given.items() if value is not None}

    def recall(self) -> RecallSettings:
        """Return the settings of recall."""
        from turngraph.data.memory_graph.recall.recall import RecallSettings
        from turngraph.data.memory_graph.recall.traverse_settings import PPR, Traversal, changed

        ppr = PPR(top_k=self.num_facts) if self.mode == "episodes" else PPR()
        return RecallSettings(
            traversal=changed(Traversal(self.mixture, ppr=ppr), self.settings),
            forbidden=tuple(self.forbidden),
            num_facts=self.num_facts,
            min_similarity=self.min_similarity,
        )

    def planning(self) -> PlanSettings:
        """Return the settings of a plan."""
        from turngraph.data.memory_graph.plan.steps import PlanSettings

        over: Literal["facts", "episodes"] = "episodes" if self.over == "episodes" else "facts"
        return PlanSettings(over=over, recall=self.recall(), **self.limits)


def add_db(added: argparse.ArgumentParser) -> None:
    """Add ``--db`` and ``--tenant``, which say where a memory graph is."""
    added.add_argument(
        "--db",
        required=True,
        metavar="my.db",
        help="the memory graph: a file, or a PostgreSQL database as postgresql://HOST/DATABASE",
    )
    added.add_argument(
        "--tenant", metavar="NAME", help="whose memory graph it is, in a PostgreSQL database"
    )

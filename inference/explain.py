"""Why an answer is what it is: ``infer.py answer --explain`` and ``/why`` in a chat."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from tqdm import tqdm

from turngraph.data.batches.collate import collate
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.chain_graph import node_starts, span_nodes
from turngraph.data.graph.entity_spans import entity_spans
from turngraph.data.jsonlines import iter_lines, whole_file
from turngraph.data.scoring.explain_page import write_explain_page
from turngraph.data.scoring.explanation import (
    DroppedPassage,
    ExplainedPassage,
    ExplainedTurn,
    Explanation,
    MarkedSpan,
    PassageEdge,
    origin,
    shares,
)
from turngraph.data.types import Conversation, Evidence, Retrieved, interaction_answer
from turngraph.inference.questions import Questions
from turngraph.model.attribution import attribute
from turngraph.model.checkpoint import Checkpoint, file_hash
from turngraph.model.device_memory import is_out_of_memory
from turngraph.model.graph_lm import GraphLM

logger = logging.getLogger("infer")


class Parts(NamedTuple):
    """An answer's log-probability and what passages and edges have to do with it.

    Args:
        logprob: of the answer and the end of the turn.
        passages: size of gradient x input of each passage: absolute values summed over its nodes,
            which say far better what an answer owes to a passage than the sum in which they cancel
            (docs/results.md).
        signed: that sum, in units of log-probability: above 0 the passage speaks for the answer.
        attention: how much other passages listen to each: attention weights of the entity edges
            that leave its nodes, averaged over layers and heads, summed.
        edge_ends: the passages that each entity edge joins, from and to, [2, edges].
        edge_nodes: the node that each entity edge comes from.
        edges: gradient of a factor on each entity edge's attention weights.
        edge_attention: each entity edge's attention weight, averaged over layers and heads.
    """

    logprob: float
    passages: np.ndarray
    signed: np.ndarray
    attention: np.ndarray
    edge_ends: np.ndarray
    edge_nodes: np.ndarray
    edges: np.ndarray
    edge_attention: np.ndarray


def evidence_parts(model: GraphLM, builder: ExampleBuilder, example: Example) -> Parts:
    """What an example's target owes to its evidence.

    Args:
        model: in evaluation mode.
        builder: that built the example.
        example: with the answer to explain as its target.
    """
    found = attribute(model, collate([example], "right", with_target=True).to(model.device))
    starts = node_starts(builder.tokenise([item.evidence for item in example.evidence])[1])
    graph = example.graph
    nodes = np.zeros(len(graph.node_ids))
    at = slice(None) if model.encoder is not None else graph.first_at_place
    nodes[at] = found.nodes.cpu().double().numpy()
    of_passages = [nodes[start:end] for start, end in pairwise(starts)]
    joined = slice(graph.edge_index.shape[1] - graph.num_entity_edges, None)
    edge_index = graph.edge_index[:, joined]
    ends = np.searchsorted(starts, edge_index, side="right") - 1
    attention = found.attention[joined].cpu().double().numpy()
    return Parts(
        logprob=found.logprob,
        passages=np.array([np.abs(values).sum() for values in of_passages]),
        signed=np.array([values.sum() for values in of_passages]),
        attention=np.bincount(ends[0], attention, minlength=len(of_passages)),
        edge_ends=ends,
        edge_nodes=edge_index[0],
        edges=found.edges[joined].cpu().double().numpy(),
        edge_attention=attention,
    )


def why(
    model: GraphLM,
    builder: ExampleBuilder,
    example: Example,
    answer: str,
    dropped: Sequence[DroppedPassage] = (),
) -> ExplainedTurn:
    """What an answer owes to each passage of the evidence and to each entity that joins them.

    Args:
        model: in evaluation mode.
        builder: that built the example.
        example: as the model was asked.
        answer: the text to explain: what the model wrote, or any other answer.
        dropped: handed on to the record.
    """
    prompt = builder.prompt
    target = prompt.target_ids(answer) if answer else [prompt.end_id]  # what says nothing ends
    parts = evidence_parts(model, builder, replace(example, target_ids=target))
    texts, tokens = builder.tokenise([item.evidence for item in example.evidence])
    spans = entity_spans(texts)
    labels = {entity.id: entity.label for text in reversed(texts) for entity in text.entities}
    marked = [
        tuple(MarkedSpan(span.start, span.end, span.entity, labels[span.entity]) for span in found)
        for found in spans
    ]
    named = span_nodes(tokens, spans, node_starts(tokens))
    entities = {node: entity for entity, places in named.items() for _, node in places}
    turn = example.conversation.turns[example.turn]
    graph = model.encoder is not None
    return ExplainedTurn(
        id=turn.id,
        number=example.turn,
        question=turn.question,
        answer=answer,
        gold=tuple(gold.label for gold in turn.answers),
        logprob=parts.logprob,
        passages=_passages(example, [text.text for text in texts], marked, parts, graph),
        edges=_edges(parts, entities, labels) if graph else (),
        dropped=tuple(dropped),
    )


def why_if_it_fits(
    model: GraphLM,
    builder: ExampleBuilder,
    example: Example,
    answer: str,
    dropped: Sequence[DroppedPassage],
) -> list[ExplainedTurn]:
    """As ``why``; nothing, with a warning, where it takes more memory than there is."""
    try:
        return [why(model, builder, example, answer, dropped)]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    logger.warning("conversation %s, turn %s: out of memory, not explained", *example.key)
    return []


def _passages(
    example: Example,
    texts: Sequence[str],
    marked: Sequence[tuple[MarkedSpan, ...]],
    parts: Parts,
    graph: bool,
) -> tuple[ExplainedPassage, ...]:
    share, attention = shares(parts.passages.tolist()), shares(parts.attention.tolist())
    return tuple(
        ExplainedPassage(
            id=item.evidence.id,
            source=item.evidence.source,
            text=texts[number],
            score=item.score,
            from_turn=item.from_turn,
            origin=origin(item, example.turn),
            share=share[number],
            signed=float(parts.signed[number]),
            attention=attention[number] if graph else None,
            spans=marked[number],
        )
        for number, item in enumerate(example.evidence)
    )


def _edges(
    parts: Parts, entities: Mapping[int, str], labels: Mapping[str, str]
) -> tuple[PassageEdge, ...]:
    """Entity edges between the same two passages by the same entity, taken together."""
    together: dict[tuple[int, int, str], list[int]] = {}
    for edge, (node, ends) in enumerate(zip(parts.edge_nodes, parts.edge_ends.T, strict=True)):
        first, second = sorted(ends.tolist())
        together.setdefault((first, second, entities[int(node)]), []).append(edge)
    size = [float(np.abs(parts.edges[edges]).sum()) for edges in together.values()]
    signed = [float(parts.edges[edges].sum()) for edges in together.values()]
    attention = [float(parts.edge_attention[edges].mean()) for edges in together.values()]
    return tuple(
        PassageEdge(first, second, entity, labels[entity], *numbers)
        for (first, second, entity), *numbers in zip(
            together, shares(size), signed, attention, strict=True
        )
    )


def dropped_passages(
    builder: ExampleBuilder, example: Example, retrieved: Sequence[Retrieved]
) -> list[DroppedPassage]:
    """What was retrieved for an example and not given to the model, and why.

    Args:
        builder: that built the example.
        example: with the evidence that was given.
        retrieved: what ``builder.retrieve`` gives for its question.
    """
    given = {item.evidence.text for item in example.evidence}
    limit = builder.config.max_nodes or np.inf
    ends = np.cumsum(builder.sizes(retrieved))
    return [
        DroppedPassage(
            passage.id, passage.source, passage.text, score, "budget" if end > limit else "memory"
        )
        for (passage, score), end in zip(
            ((r.evidence, r.score) for r in retrieved), ends, strict=True
        )
        if passage.text not in given
    ]


def explain_conversation(
    model: GraphLM,
    builder: ExampleBuilder,
    conversation: Conversation,
    answers: Mapping[int, str | None],
    history: Literal["gold", "predicted"],
    checkpoint: str,
    pool: tuple[Evidence, ...] | None = None,
) -> Explanation:
    """A conversation's answers with their reasons.

    Args:
        model: in evaluation mode.
        builder: of the model's examples.
        conversation: as it was answered.
        answers: number of the turn -> what the model wrote, for the turns that it was asked; None
            where it failed, which is not explained.
        history: which answers fill the interaction.
        checkpoint: its name, for the record.
        pool: what was read instead of the conversation's own evidence.
    """
    memory, interaction, turns = builder.memory(conversation), [], []
    for number, turn in enumerate(conversation.turns[: max(answers, default=-1) + 1]):
        _, retrieved = builder.retrieve(conversation, number, interaction, pool)
        if number in answers:
            example = builder.turn(conversation, number, interaction, memory, pool)
            if (answer := answers[number]) is not None:
                dropped = dropped_passages(builder, example, retrieved)
                turns += why_if_it_fits(model, builder, example, answer, dropped)
        else:
            memory.add(retrieved)
        told = interaction_answer(turn.answers) if history == "gold" else answers.get(number)
        interaction.append((turn.question, told or ""))
    if memory.graph is not None:
        memory.graph.close()
    evidence = "text" if model.encoder is None else "graph"
    return Explanation(
        conversation.id,
        conversation.domain,
        checkpoint,
        evidence,
        history,
        builder.config.memory,
        tuple(turns),
    )


def explain_answers(
    *,
    model: GraphLM,
    builder: ExampleBuilder,
    questions: Questions,
    predictions: str,
    page: str,
    history: Literal["gold", "predicted"],
    checkpoint: Checkpoint,
    stop: StopRequest,
) -> None:
    """Write a page with the reasons for each conversation of a complete predictions file.

    ``PAGE.unfinished`` lists the pages that are written, as long as some are missing.

    Args:
        model, builder: of the checkpoint that answered.
        questions: that were answered.
        predictions: path of the answers.
        page: ``OUT.html``; of several conversations, ``OUT-ID.html``.
        history: which answers filled the interaction.
        checkpoint: that answered; its name stands on the page.
        stop: asked after every page.

    Raises:
        SystemExit: it was asked to stop; the same command resumes.
    """
    model.eval()
    conversations = questions.conversations
    answers = read_answers(predictions, {conversation.id for conversation in conversations})
    name = "/".join(checkpoint.folder.parts[-2:])
    paths = page_paths(page, list(answers))
    answered = [pair for pair in enumerate(conversations) if pair[1].id in answers]
    journal = Path(f"{page}.unfinished")
    done = explained(journal, file_hash(predictions))
    left = [pair for pair in answered if pair[1].id not in done]
    bar = tqdm(left, initial=len(done), total=len(answered), desc="explanations")
    for number, conversation in bar:
        if stop:
            logger.info("stopped: %s; the same command goes on", stop.reason)
            raise SystemExit(EXIT_GO_ON)
        found = explain_conversation(
            model,
            builder,
            conversation,
            answers[conversation.id],
            history,
            name,
            questions.pool(number),
        )
        write_explain_page(found, paths[conversation.id])
        with journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(conversation.id) + "\n")
    journal.unlink(missing_ok=True)
    logger.info("wrote %d pages: %s ...", len(paths), next(iter(paths.values()), "none"))


def read_answers(path: str, known: Container[str]) -> dict[str, dict[int, str | None]]:
    """The answers of predictions by conversation and number of the turn; None where one failed.

    Args:
        path: of the predictions.
        known: conversations; others are lines of the input that could not be read.
    """
    answers: dict[str, dict[int, str | None]] = {}
    for _, record in iter_lines(path):
        if record.get("conversation") in known:
            of_turns = answers.setdefault(record["conversation"], {})
            of_turns[record["turn_index"]] = record.get("answer")
    return answers


def explained(journal: Path, predictions: str) -> set[str]:
    """The conversations that have their pages; none where these are of other predictions.

    Args:
        journal: says so; is begun again where it has none.
        predictions: hash of the file that is explained.
    """
    head = json.dumps({"predictions": predictions})
    text = journal.read_text(encoding="utf-8") if journal.is_file() else ""
    begun, *ids = text.splitlines(keepends=True) or [""]
    if begun == f"{head}\n":
        return {json.loads(line) for line in ids if line.endswith("\n")}
    with whole_file(journal) as file:
        file.write(f"{head}\n")
    return set()


def page_paths(path: str | Path, ids: Sequence[str]) -> dict[str, Path]:
    """Where each conversation's page stands: at a path, or, of several, beside it by their ids.

    Args:
        path: ``OUT.html``.
        ids: of the conversations; of several, c1 stands in ``OUT-c1.html``.
    """
    path = Path(path)
    if len(ids) == 1:
        return {ids[0]: path}
    paths: dict[str, Path] = {}
    taken: set[str] = set()  # some file systems take c1 and C1 for one name
    for id_ in ids:
        name = re.sub(r"[^\w.-]+", "_", id_).encode()[:80].decode(errors="ignore")
        found = path.with_name(f"{path.stem}-{name}{path.suffix}")
        while found.name.casefold() in taken:
            found = found.with_stem(f"{found.stem}_")
        taken.add(found.name.casefold())
        paths[id_] = found
    return paths

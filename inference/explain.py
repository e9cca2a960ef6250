"""Explains answers by gradient attribution, for ``turngraph answer --explain`` and ``/why``."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from turngraph.configs.json_files import file_hash
from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.data.batches.collate import candidate_entities, collate
from turngraph.data.cli import EXIT_GO_ON, StopRequest
from turngraph.data.examples import Example, ExampleBuilder
from turngraph.data.graph.chain_graph import node_starts, span_nodes
from turngraph.data.graph.entity_spans import entity_spans
from turngraph.data.graph.mentions import find_answers
from turngraph.data.json_fields import decoded, field, iter_lines, parse_json, raw_lines
from turngraph.data.outputs import is_stream, whole_file, writing
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
from turngraph.data.scoring.metrics import answer_value
from turngraph.data.types import Answer, Conversation, Evidence, Retrieved, interaction_answer
from turngraph.inference.candidates import span_places
from turngraph.inference.questions import Questions
from turngraph.model.attribution import attribute
from turngraph.model.checkpoint import Checkpoint
from turngraph.model.device_memory import is_out_of_memory
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.node_ranker import NodeRanker
from turngraph.model.reader import Reader
from turngraph.model.text_lm import TextLM

logger = logging.getLogger("infer")


class Parts(NamedTuple):
    """An answer's log-probability, attributed to passages and entity edges.

    P passages, E entity edges.

    Args:
        logprob: log-probability of the answer and the end of the turn; natural logarithm; None:
            no passage has an answer that the graph ranks.
        passages: magnitude of gradient x input of each passage, [P]: absolute values summed over
            its nodes. They measure a passage's influence far better than the signed sum, in which
            values cancel (docs/results.md).
        attention: attention that other passages pay to each, [P]: weights of the entity edges that
            leave its nodes, averaged over layers and heads, summed.
        edge_ends: source and target passage of each entity edge, [2, E].
        edge_nodes: source node of each entity edge, [E].
        edges: gradient with respect to a factor on each entity edge's attention weights, [E].
        edge_attention: attention weight of each entity edge, averaged over layers and heads, [E].
    """

    logprob: float | None
    passages: np.ndarray
    attention: np.ndarray
    edge_ends: np.ndarray
    edge_nodes: np.ndarray
    edges: np.ndarray
    edge_attention: np.ndarray


class Given(NamedTuple):
    """What a predictions file says of one question.

    Args:
        answer: the answer that was given; None: the question failed.
        withheld: the answer that was withheld for it; None: none was.
        alone: whether it was read without the dialogue.
    """

    answer: str | None
    withheld: str | None = None
    alone: bool = False


def evidence_parts(
    model: EvidenceModel, builder: ExampleBuilder, example: Example, answer: str
) -> Parts:
    """Attribute an answer to its evidence.

    Args:
        model: model in evaluation mode.
        builder: builder that built the example.
        example: the prompt, or the graph whose entities are scored.
        answer: its text; of models that rank, "" if there is none.

    Raises:
        UserError: the model ranks entities, and none of the evidence has this label.
    """
    prompt, entities, of_answer = builder.prompt, list[int](), None
    assert isinstance(model, TextLM | NodeRanker | Reader), type(model)
    if not isinstance(model, TextLM):
        candidates, mentions = candidate_entities(example), example.graph.mentions
        assert mentions is not None, "built without mentions"
        same = answer_value if isinstance(model, Reader) else str
        entities = [i for i, one in enumerate(candidates) if same(one.label) == same(answer)]
        places = np.empty((2, 0), np.int64)
        if isinstance(model, Reader):
            passages = [item.evidence for item in example.evidence]
            tokens = builder.tokenise(passages)[1]
            places = find_answers(passages, tokens, [Answer(answer)])
            mentions = replace(mentions, answers=places)
            example = replace(example, graph=replace(example.graph, mentions=mentions))
            of_answer = partial(span_places, prompt, example, answer)
        if not entities and not places.size:
            if answer and isinstance(model, NodeRanker):
                raise UserError(f"no entity of the evidence is named {answer!r}")
            return _no_parts(len(example.evidence))  # the LM wrote what no passage says
    target = prompt.target_ids(answer) if answer else [prompt.end_id]  # "": only the end token
    batch = collate([replace(example, target_ids=target)], "right", with_target=True)
    attribution = attribute(model, batch.to(model.device), entities, of_answer)
    starts = node_starts(builder.tokenise([item.evidence for item in example.evidence])[1])
    graph = example.graph
    per_node = np.zeros(len(graph.node_ids))
    read = slice(None if model.has_graph else len(graph.prompt_ids))
    per_node[read] = attribution.nodes.cpu().double().numpy()
    per_passage = [per_node[start:end] for start, end in pairwise(starts)]
    entity_edges = slice(graph.edge_index.shape[1] - graph.num_entity_edges, None)
    edge_index = graph.edge_index[:, entity_edges]
    ends = np.searchsorted(starts, edge_index, side="right") - 1
    attention = attribution.attention[entity_edges].cpu().double().numpy()
    return Parts(
        logprob=attribution.logprob,
        passages=np.array([np.abs(values).sum() for values in per_passage]),
        attention=np.bincount(ends[0], attention, minlength=len(per_passage)),
        edge_ends=ends,
        edge_nodes=edge_index[0],
        edges=attribution.edges[entity_edges].cpu().double().numpy(),
        edge_attention=attention,
    )


def _no_parts(num_passages: int) -> Parts:
    """Return parts that are all zero, for an answer that no passage contains."""
    none, ends, edges = np.zeros(num_passages), np.zeros((2, 0), int), np.zeros(0)
    return Parts(None, none, none, ends, ends[0], edges, edges)


def why(
    model: EvidenceModel,
    builder: ExampleBuilder,
    example: Example,
    answer: str,
    dropped: Sequence[DroppedPassage] = (),
) -> ExplainedTurn:
    """Explain an answer by the passages of its evidence and the entities that link them.

    Args:
        model: model in evaluation mode.
        builder: builder that built the example.
        example: the prompt that the model answered.
        answer: the text to explain: the model's answer, or any other that it can give.
        dropped: passages that were retrieved and not given to the model, for the record.

    Raises:
        UserError: as ``evidence_parts``.
    """
    parts = evidence_parts(model, builder, example, answer)
    texts, tokens = builder.tokenise([item.evidence for item in example.evidence])
    spans = entity_spans(texts)
    labels = {entity.id: entity.label for text in reversed(texts) for entity in text.entities}
    marked = [
        tuple(
            MarkedSpan(span.start, span.end, span.entity, labels[span.entity])
            for span in passage_spans
        )
        for passage_spans in spans
    ]
    named = span_nodes(tokens, spans, node_starts(tokens))
    entities = {node: entity for entity, ends in named.items() for _, node in ends}
    turn = example.conversation.turns[example.turn]
    graph = model.has_graph
    return ExplainedTurn(
        id=turn.id,
        index=example.turn,
        question=turn.question,
        answer=answer,
        gold=tuple(gold.label for gold in turn.answers),
        logprob=parts.logprob,
        passages=_passages(example, [text.text for text in texts], marked, parts, graph),
        edges=_edges(parts, entities, labels) if graph else (),
        dropped=tuple(dropped),
    )


def why_if_it_fits(
    model: EvidenceModel,
    builder: ExampleBuilder,
    example: Example,
    given: Given,
    dropped: Sequence[DroppedPassage],
) -> list[ExplainedTurn]:
    """Return ``[why(...)]``; on running out of memory, log a warning and return an empty list."""
    try:
        answer = given.answer if given.withheld is None else given.withheld
        assert answer is not None, "failed"
        turn = why(model, builder, example, answer, dropped)
        return [replace(turn, withheld=given.withheld is not None)]
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
    """Return the record of each passage; ``graph`` is whether the model has an encoder."""
    share, attention = shares(parts.passages.tolist()), shares(parts.attention.tolist())
    return tuple(
        ExplainedPassage(
            id=item.evidence.id,
            source=item.evidence.source,
            text=texts[index],
            score=item.score,
            from_turn=item.from_turn,
            origin=origin(item, example.turn),
            share=share[index],
            attention=attention[index] if graph else None,
            spans=marked[index],
        )
        for index, item in enumerate(example.evidence)
    )


def _edges(
    parts: Parts, entities: Mapping[int, str], labels: Mapping[str, str]
) -> tuple[PassageEdge, ...]:
    """Return one record per pair of passages and entity that links them.

    Args:
        parts: attribution of the answer.
        entities: id of the entity that ends at a node, by node.
        labels: labels of the entities, by id.
    """
    grouped: dict[tuple[int, int, str], list[int]] = {}
    for edge, (node, ends) in enumerate(zip(parts.edge_nodes, parts.edge_ends.T, strict=True)):
        first, second = sorted(ends.tolist())
        grouped.setdefault((first, second, entities[int(node)]), []).append(edge)
    share = shares([float(np.abs(parts.edges[edges]).sum()) for edges in grouped.values()])
    return tuple(
        PassageEdge(
            first=first,
            second=second,
            entity=entity,
            label=labels[entity],
            share=share[index],
            attention=float(parts.edge_attention[edges].mean()),
        )
        for index, ((first, second, entity), edges) in enumerate(grouped.items())
    )


def dropped_passages(
    builder: ExampleBuilder, example: Example, retrieved: Sequence[Retrieved]
) -> list[DroppedPassage]:
    """Return the passages that were retrieved and not given to the model, with the reason.

    Args:
        builder: builder that built the example.
        example: example with the evidence that the model was given.
        retrieved: the result of ``builder.retrieve`` for its question.
    """
    given = {item.evidence.text for item in example.evidence}
    limit = builder.config.max_nodes or np.inf
    ends = np.cumsum(builder.sizes(retrieved))
    return [
        DroppedPassage(
            id=item.evidence.id,
            source=item.evidence.source,
            text=item.evidence.text,
            score=item.score,
            reason="budget" if end > limit else "memory",
        )
        for item, end in zip(retrieved, ends, strict=True)
        if item.evidence.text not in given
    ]


def explain_conversation(
    model: EvidenceModel,
    builder: ExampleBuilder,
    conversation: Conversation,
    answers: Mapping[int, Given],
    history: Literal["gold", "predicted"],
    checkpoint: str,
    pool: tuple[Evidence, ...] | None,
) -> Explanation:
    """Explain all answers of a conversation.

    Args:
        model: model in evaluation mode.
        builder: builder of the model's examples.
        conversation: conversation that was answered.
        answers: what was answered, by the index of its turn, for the turns that were asked; one
            that failed is not explained.
        history: answers that fill the interaction: ``gold`` or ``predicted``.
        checkpoint: name of the checkpoint, for the record.
        pool: evidence that was read instead of the conversation's own.
    """
    memory = builder.memory(conversation)
    interaction: list[tuple[str, str]] = []
    turns: list[ExplainedTurn] = []
    for index, turn in enumerate(conversation.turns[: max(answers, default=-1) + 1]):
        _, retrieved = builder.retrieve(conversation, index, interaction, pool)
        given = answers.get(index, Given(None))
        if index in answers:
            example = builder.turn(conversation, index, interaction, memory, pool)
            if given.answer is not None:
                example = (example.alone if given.alone else None) or example
                dropped = dropped_passages(builder, example, retrieved)
                turns += why_if_it_fits(model, builder, example, given, dropped)
        else:
            memory.add(retrieved)
        filled = interaction_answer(turn.answers) if history == "gold" else given.answer
        interaction.append((turn.question, filled or ""))
    return Explanation(
        conversation=conversation.id,
        domain=conversation.domain,
        checkpoint=checkpoint,
        evidence="graph" if model.has_graph else "text",
        history=history,
        memory=builder.config.memory,
        turns=tuple(turns),
    )


def explain_answers(
    *,
    model: EvidenceModel,
    builder: ExampleBuilder,
    questions: Questions,
    predictions: str,
    page: str,
    history: Literal["gold", "predicted"],
    checkpoint: Checkpoint,
    stop: StopRequest,
) -> None:
    """Write an explanation page for each conversation of a complete predictions file.

    Until all pages are written, ``PAGE.unfinished`` lists those that are. There is no such file if
    the page is written to a device or a pipe.

    Args:
        model, builder: model and builder of the checkpoint that answered.
        questions: the questions that were answered.
        predictions: path of the predictions file.
        page: ``OUT.html``; for several conversations, ``OUT-ID.html`` each.
        history: answers that filled the interaction: ``gold`` or ``predicted``.
        checkpoint: checkpoint that answered; the page shows its name.
        stop: checked before every page.

    Raises:
        SystemExit: a stop was requested; the same command resumes.
    """
    model.eval()
    conversations = questions.conversations
    known = {conversation.id for conversation in conversations}
    answers = read_answers(predictions, known)
    name = "/".join(checkpoint.folder.parts[-2:])
    paths = page_paths(page, list(answers))
    answered = [pair for pair in enumerate(conversations) if pair[1].id in answers]
    journal = None if is_stream(page) else Path(f"{page}.unfinished")
    done = set() if journal is None else explained(journal, file_hash(predictions))
    left = [pair for pair in answered if pair[1].id not in done]
    num_done = len(answered) - len(left)
    for index, conversation in track(left, "explanations", "conversations", initial=num_done):
        if stop:
            logger.info("stopped: %s; the same command resumes", stop.reason)
            raise SystemExit(EXIT_GO_ON)
        explanation = explain_conversation(
            model=model,
            builder=builder,
            conversation=conversation,
            answers=answers[conversation.id],
            history=history,
            checkpoint=name,
            pool=questions.pool(index),
        )
        write_explain_page(explanation, paths[conversation.id])
        if journal is not None:
            with writing(journal), journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps(conversation.id) + "\n")
    if journal is not None:
        journal.unlink(missing_ok=True)
    first = next(iter(paths.values()), "none")
    if len(paths) == 1:
        logger.info("written to %s", first)
    else:
        logger.info("wrote %d pages: %s ...", len(paths), first)


def read_answers(path: str, known: Container[str]) -> dict[str, dict[int, Given]]:
    """Return the answers in a predictions file by conversation and turn index.

    Args:
        path: path of the predictions file.
        known: ids of the conversations; other ids belong to input lines that could not be read.
    """
    answers: dict[str, dict[int, Given]] = {}
    for location, record in iter_lines(path):
        if (id_ := field(record, "conversation", str, location, "")) in known:
            if not isinstance(record.get("turn_index"), int):
                raise (location / "turn_index").error("must be a whole number")
            answers.setdefault(id_, {})[record["turn_index"]] = Given(
                field(record, "answer", str, location, None),
                field(record, "withheld", str, location, None),
                bool(record.get("alone")),
            )
    return answers


def explained(journal: Path, predictions: str) -> set[str]:
    """Return the ids of the conversations whose pages are written.

    Args:
        journal: lists them; replaced if it is missing or belongs to other predictions.
        predictions: hash of the predictions file.
    """
    head = json.dumps({"predictions": predictions})
    lines = list(raw_lines(journal)) if journal.is_file() else []
    if lines and lines[0][1] == f"{head}\n".encode():
        if not lines[-1][1].endswith(b"\n"):  # incomplete: the run was killed while writing it
            with writing(journal):
                os.truncate(journal, sum(len(raw) for _, raw in lines[:-1]))
            lines.pop()
        return {str(parse_json(decoded(raw, location), location)) for location, raw in lines[1:]}
    with whole_file(journal) as file:
        file.write(f"{head}\n")
    return set()


def page_paths(path: str | Path, ids: Sequence[str]) -> dict[str, Path]:
    """Return the path of each conversation's page.

    Args:
        path: ``OUT.html``, the page of a single conversation.
        ids: ids of the conversations; if there are several, the page of c1 is ``OUT-c1.html``.
    """
    path = Path(path)
    if len(ids) == 1:
        return {ids[0]: path}
    paths: dict[str, Path] = {}
    taken: set[str] = set()  # some file systems do not tell c1 from C1
    for id_ in ids:
        name = re.sub(r"[^\w.-]+", "_", id_).encode()[:80].decode(errors="ignore")
        page = path.with_name(f"{path.stem}-{name}{path.suffix}")
        while page.name.casefold() in taken:
            page = page.with_stem(f"{page.stem}_")
        taken.add(page.name.casefold())
        paths[id_] = page
    return paths

"""Trains an LM on the choice among the entities that a node scorer proposes.

python -m turngraph.benchmarks.quality.choice_training --proposals nodes_train.jsonl \
    --weight 0.75 --config sqa/text --data.train runs/data/sqa/train.jsonl \
    --data.max_train_questions 400 --training.output runs/choice

The loss of a question is -log of the probability that its gold entities have among the proposals
under both models, log p_LM + w log p_nodes normalised over the proposals, as ``answer --proposals``
computes it, plus ``--text_weight`` times the answer's own loss as text, which is all that ``turngraph
train`` has. The proposals stand behind one prompt in one row; each attends to the prompt and to
itself. A question whose answer is not proposed gets it as the last proposal. The proposals of
training questions must come from a scorer that was not trained on them. Questions, steps, rates and
prompts are those of the config; the checkpoint is ``last``.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from turngraph.configs.parse import load_config
from turngraph.data.batches.collate import Batch
from turngraph.data.batches.prefetch import steps
from turngraph.data.batches.schedule import BatchSchedule
from turngraph.data.cli import run_cli
from turngraph.data.example_cache import load_examples
from turngraph.data.examples import Example
from turngraph.data.prompt import Prompt
from turngraph.data.scoring.metrics import same_entity
from turngraph.data.scoring.predictions import read_proposals
from turngraph.data.scoring.proposals import Proposed
from turngraph.inference.load import load_builder
from turngraph.model.base_model import embedding_table
from turngraph.model.checkpoint import save_checkpoint
from turngraph.model.graph_lm import GraphLM
from turngraph.training.optimizer import make_optimizer, set_rates

LONGEST = 24
"""Tokens of a proposal; longer labels are cut, as ``answer`` does by ``--max_new_tokens``."""
logger = logging.getLogger("choice_training")


def main(argv: Sequence[str] | None = None) -> None:
    """Train; print the losses of every 10 steps; write the checkpoint."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    args, rest = _parser().parse_known_args(argv)
    config = load_config(rest)
    settings, data = config.training, config.data
    torch.manual_seed(settings.seed)
    builder = load_builder(config, trusted=())
    make = partial(load_builder, config, trusted=())
    assert data.train is not None, "data.train is needed"
    examples = load_examples(
        builder, data.train, data.max_train_questions, data, settings.seed, make
    )
    known = read_proposals(args.proposals, args.num_proposals)
    model = GraphLM(config.model)
    schedule = BatchSchedule(examples, settings)
    optimizer = make_optimizer(model, settings)
    losses: list[tuple[float, float]] = []
    model.train()
    for step in tqdm(steps(examples, schedule, range(schedule.num_steps)), total=schedule.num_steps):
        set_rates(optimizer, settings, step.index, schedule.num_steps)
        both = np.zeros(2)
        num = len(step.batches)
        for batch, (example,) in zip(step.batches, step.examples, strict=True):
            choice, text = example_losses(
                model, builder.prompt, batch, example, known.get(example.key), args.weight
            )
            text = text / step.answer_tokens
            (choice / num + args.text_weight * text).backward()
            both += float(choice) / num, float(text)
        nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append((both[0], both[1]))
        if step.index % 10 == 9:
            logger.info("step %d: choice %.3f, text %.3f", step.index + 1, *np.mean(losses[-10:], 0))
    logger.info("all: choice %.3f, text %.3f", *np.mean(losses, 0))
    model.eval()
    save_checkpoint(model, config, {"steps": schedule.num_steps}, Path(settings.output) / "last")


def example_losses(
    model: GraphLM,
    prompt: Prompt,
    batch: Batch,
    example: Example,
    proposed: Proposed | None,
    weight: float,
) -> tuple[Tensor, Tensor]:
    """Return the loss of the choice and that of the answer as text, summed over its tokens.

    Args:
        batch: the example alone, with its target.
        proposed: its proposals; None: it has none, and the answer alone is read.
        weight: of the node scorer's log-probabilities.
    """
    found = [] if proposed is None else proposed.proposals
    answers = example.conversation.turns[example.turn].answers
    gold = [any(same_entity(p.entity, answer) for answer in answers) for p in found]
    ids = [prompt.target_ids(p.entity.label)[:LONGEST] for p in found]
    nodes = [p.logprob for p in found]
    if not any(gold):
        ids, gold = [*ids, example.target_ids[:LONGEST]], [*gold, True]
        nodes.append(min(nodes, default=0.0))
    length = batch.input_ids.shape[1] - len(example.target_ids)
    written = proposal_logprobs(model, batch, length, ids)
    scores = written + weight * torch.tensor(nodes)
    is_gold = torch.tensor(gold)
    choice = scores.logsumexp(0) - scores[is_gold].logsumexp(0)
    return choice, -written[is_gold].max()


def proposal_logprobs(
    model: GraphLM, batch: Batch, length: int, ids: Sequence[Sequence[int]]
) -> Tensor:
    """Return the LM's log-probability of each proposal after the prompt, [P], in one pass.

    Args:
        batch: one example, whose first ``length`` tokens are the prompt.
        ids: tokens of each proposal, its end included.
    """
    prompt = model.input_embeddings(batch)[:, :length]
    table = embedding_table(model.causal_lm)
    fed = [one[:-1] for one in ids]
    sizes = [len(one) for one in fed]
    flat = torch.tensor([token for one in fed for token in one], dtype=torch.long)
    owner = torch.repeat_interleave(torch.tensor(sizes))  # [S]
    within = torch.cat([torch.arange(n) for n in sizes]) if flat.numel() else flat
    total = length + len(flat)
    allowed = torch.zeros(total, total, dtype=torch.bool)
    allowed[:length, :length] = torch.ones(length, length, dtype=torch.bool).tril()
    allowed[length:, :length] = True
    allowed[length:, length:] = (owner[:, None] == owner) & (within[:, None] >= within)
    dtype = torch.bfloat16 if model.config.dtype == "bfloat16" else torch.float32
    mask = torch.zeros(1, 1, total, total, dtype=dtype)
    mask.masked_fill_(~allowed, torch.finfo(dtype).min)
    with model._autocast():
        logits = model.causal_lm(
            inputs_embeds=torch.cat([prompt, table(flat)[None]], 1),
            attention_mask=mask,
            position_ids=torch.cat([torch.arange(length), length + within])[None],
            use_cache=False,
            logits_to_keep=torch.arange(length - 1, total),
        ).logits[0]
    logprobs = logits.float().log_softmax(-1)  # [1 + S, V]
    starts = np.cumsum([1, *sizes])
    sums = []
    for one, start in zip(ids, starts, strict=False):
        rows = torch.tensor([0, *range(start, start + len(one) - 1)])
        sums.append(logprobs[rows, torch.tensor(one)].sum())
    return torch.stack(sums)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--proposals", required=True, help="a node scorer's predictions")
    parser.add_argument("--num_proposals", type=int, default=20)
    parser.add_argument("--weight", type=float, default=0.75, help="of the scorer's log p")
    parser.add_argument("--text_weight", type=float, default=1.0, help="of the answer as text")
    return parser


if __name__ == "__main__":
    run_cli(main)

"""Defines the systems that ``infer_speed.py`` measures, and our LM's forward passes alone.

Each answers the same questions from the same evidence with the same LM, greedily.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch as PygBatch
from transformers import DynamicCache, PreTrainedModel

from turngraph.benchmarks.speed.measures import clock, lm_of
from turngraph.benchmarks.speed.peers import Pyg
from turngraph.data.batches.collate import collate
from turngraph.data.examples import Example
from turngraph.data.prompt import Prompt
from turngraph.inference.answer_batches import answer_together
from turngraph.inference.answer_lines import WINDOW
from turngraph.model.generation import key_value_cache
from turngraph.model.graph_lm import TextLM


class Pass(NamedTuple):
    """Seconds that some questions took, their answers, and the number of generated tokens."""

    seconds: float
    answers: list[str]
    num_tokens: int


class Answerer(Protocol):
    """A system that answers questions."""

    @property
    def module(self) -> nn.Module:
        """All its weights."""

    def answer(self, examples: Sequence[Example]) -> Pass:
        """Answer all questions, in their order."""

    def largest(self, examples: Sequence[Example]) -> Sequence[Example]:
        """Return the questions that take the most memory together in one batch."""


class Ours:
    """``turngraph answer``, from examples to records.

    Args:
        model: graph or text model.
        prompt: the prompt to collate and decode with.
        max_new_tokens: longest answer in tokens.
        settings: batch settings of ``answer_together``.
    """

    def __init__(
        self, model: TextLM, prompt: Prompt, max_new_tokens: int, settings: dict[str, Any]
    ) -> None:
        self.module, self.prompt, self.settings = model, prompt, settings
        self.max_new_tokens = max_new_tokens
        self._generated = watch_generate(model)

    def answer(self, examples: Sequence[Example]) -> Pass:
        """Answer all questions in the windows and batches of ``turngraph answer``."""
        self._generated.clear()
        began = clock(self.module.device)
        options = {"max_new_tokens": self.max_new_tokens} | self.settings
        records = [
            record
            for start in range(0, len(examples), WINDOW)
            for record in answer_together(
                self.module, self.prompt, examples[start : start + WINDOW], **options
            )
        ]
        seconds = clock(self.module.device) - began
        ends = end_ids(lm_of(self.module))
        num_tokens = sum(count_tokens(output.ids, ends) for output in self._generated)
        return Pass(seconds, [record["answer"] for record in records], num_tokens)

    def largest(self, examples: Sequence[Example]) -> Sequence[Example]:
        """Return all examples, as it makes its own batches."""
        return examples


class OneByOne:
    """transformers' ``generate``, one question at a time.

    Args:
        model: graph or text model; its LM gets the same input embeddings as ours.
        prompt: the prompt to collate and decode with.
        max_new_tokens: longest answer in tokens.
        merged: whether LoRA is merged into the LM's weights first.
    """

    def __init__(
        self, model: TextLM, prompt: Prompt, max_new_tokens: int, merged: bool = False
    ) -> None:
        self.module, self.prompt, self.max_new_tokens = model, prompt, max_new_tokens
        if merged:
            model.lm = lm_of(model).merge_and_unload()
        self._autocast = nullcontext if merged else model._autocast

    @torch.no_grad()
    def answer(self, examples: Sequence[Example]) -> Pass:
        """Answer all questions one by one."""
        model, ends = self.module, end_ids(lm_of(self.module))
        answers, num_tokens = [], 0
        began = clock(model.device)
        for example in examples:
            batch = collate([example], "left", with_target=False).to(model.device)
            assert batch.attention_mask is not None
            with model._autocast():
                embedded = model.input_embeddings(batch)
            with self._autocast():
                ids = lm_of(model).generate(
                    inputs_embeds=embedded,
                    attention_mask=batch.attention_mask.long(),
                    max_new_tokens=self.max_new_tokens,
                    pad_token_id=self.prompt.tokenizer.eos_token_id,
                )
            answers.append(self.prompt.answer_text(ids[0].tolist()))
            num_tokens += count_tokens(ids, ends)
        return Pass(clock(model.device) - began, answers, num_tokens)

    def largest(self, examples: Sequence[Example]) -> Sequence[Example]:
        """Return the longest example."""
        return by_length(examples)[:1]


class PygAnswerer:
    """``GRetriever.inference`` in batches of questions of similar length.

    Args:
        system: GRetriever around our base model, see ``peers.Pyg``.
        max_new_tokens: longest answer in tokens.
        batch_size: questions per call.
    """

    def __init__(self, system: Pyg, max_new_tokens: int, batch_size: int) -> None:
        self.system, self.module = system, system.module.eval()
        self.max_new_tokens, self.batch_size = max_new_tokens, batch_size
        self._generated = watch_generate(self.module.llm_generator)

    @torch.no_grad()
    def answer(self, examples: Sequence[Example]) -> Pass:
        """Answer all questions; graphs are made before the clock starts, as in PyG's example."""
        ordered = by_length(examples)
        graphs = [self.system.graph(example) for example in ordered]
        self._generated.clear()
        texts: list[str] = []
        began = clock(self.system.device)
        for start in range(0, len(graphs), self.batch_size):
            batch = PygBatch.from_data_list(graphs[start : start + self.batch_size])
            texts += self.module.inference(
                batch.question,
                batch.x,
                batch.edge_index,
                batch.batch,
                additional_text_context=batch.desc,
                max_out_tokens=self.max_new_tokens,
            )
        seconds = clock(self.system.device) - began
        index = {id(example): i for i, example in enumerate(ordered)}
        ends = end_ids(self.module.llm_generator)
        num_tokens = sum(count_tokens(ids, ends) for ids in self._generated)
        return Pass(seconds, [texts[index[id(example)]] for example in examples], num_tokens)

    def largest(self, examples: Sequence[Example]) -> Sequence[Example]:
        """Return the longest examples, one batch of them."""
        return by_length(examples)[: self.batch_size]


class Bare:
    """Our LM's forward passes alone, replayed on their recorded inputs: the upper bound of ours.

    Each batch's prompts pass as embeddings, then each step's tokens, with our key-value cache and
    the same number of rows. Nothing is built, encoded, chosen, scored, decoded or written.

    Args:
        model: our model.
    """

    def __init__(self, model: TextLM) -> None:
        self.model = model
        self.batches: list[list[dict[str, Any]]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the inputs of the LM's passes; earlier records are dropped."""
        self.batches = []

        def note(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
            if given.get("inputs_embeds") is not None:
                self.batches.append([])
            self.batches[-1].append({k: v for k, v in given.items() if k != "past_key_values"})

        hook = lm_of(self.model).register_forward_pre_hook(note, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()

    @torch.no_grad()
    def run(self) -> tuple[float, float]:
        """Replay the passes; return the seconds of all prompts and of all decoding steps."""
        lm, device, total = lm_of(self.model), self.model.device, [0.0, 0.0]
        with self.model._autocast():
            for prompts, *steps in self.batches:
                rows, length = prompts["inputs_embeds"].shape[:2]
                cache = key_value_cache(lm, length + len(steps) + 1)
                began = clock(device)
                lm(**prompts, past_key_values=cache)
                middle = clock(device)
                for step in steps:
                    if len(step["input_ids"]) < rows and isinstance(cache, DynamicCache):
                        # our loop evicts rows from the cache; the cost is the same for any rows
                        rows = len(step["input_ids"])
                        cache.batch_select_indices(torch.arange(rows, device=device))
                    lm(**step, past_key_values=cache)
                total[0] += middle - began
                total[1] += clock(device) - middle
        return total[0], total[1]

    def counts(self) -> dict[str, int]:
        """Return the numbers of batches, prompt tokens with padding, steps, and tokens in steps."""
        prompts = [batch[0]["inputs_embeds"].shape for batch in self.batches]
        steps = [len(step["input_ids"]) for batch in self.batches for step in batch[1:]]
        return {
            "batches": len(prompts),
            "prompt_tokens": sum(rows * length for rows, length, _ in prompts),
            "steps": len(steps),
            "step_tokens": sum(steps),
        }


def greedy_until(base: PreTrainedModel, prompt: Prompt, ending: bool) -> Prompt:
    """Make a base model generate greedily up to the same end tokens in all systems.

    Args:
        base: the base model; its generation config is changed.
        prompt: the base model's prompt.
        ending: False: no token ends an answer, so that all answers have the longest length.

    Returns:
        A prompt with the same end token.
    """
    config = base.generation_config
    config.do_sample, config.num_beams, config.repetition_penalty = False, 1, 1.0
    config.temperature = config.top_p = config.top_k = None
    known = config.eos_token_id
    known = [known] if isinstance(known, int) else known or []
    config.eos_token_id = sorted({prompt.end_id, *known}) if ending else None
    prompt = copy.copy(prompt)
    prompt.end_id = prompt.end_id if ending else -1
    return prompt


def end_ids(lm: Any) -> Tensor:
    """Return the tokens that end an answer, as set by ``greedy_until``."""
    return torch.tensor(lm.generation_config.eos_token_id or [], dtype=torch.long)


def count_tokens(ids: Tensor, ends: Tensor) -> int:
    """Count the generated tokens of answers [B, new], each up to and including its end."""
    ended = torch.isin(ids.cpu(), ends).long()
    return int(((ended.cumsum(1) - ended) == 0).sum())


def watch_generate(module: Any) -> list[Any]:
    """Return a list to which every later output of a module's ``generate`` is appended."""
    seen: list[Any] = []
    generate = module.generate

    def watched(*args: Any, **options: Any) -> Any:
        seen.append(generate(*args, **options))
        return seen[-1]

    module.generate = watched
    return seen


def by_length(examples: Sequence[Example]) -> list[Example]:
    """Sort examples by length, longest first."""
    return sorted(examples, key=lambda example: -example.num_tokens)

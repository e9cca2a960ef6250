"""A causal LM that can write nothing but JSON of a given schema.

Shapes: B prompts of a batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import AutoTokenizer, LogitsProcessor, LogitsProcessorList

from turngraph.configs.extras import extra
from turngraph.configs.models import resolve_model
from turngraph.model.base_model import load_base_model

with extra("memory", "--extractor lm needs"):
    from llguidance import LLMatcher, LLTokenizer
    from llguidance.hf import from_tokenizer

CLOSING = ("]", "}", '"', ",")
"""What leads to the end of a reply, first what does so soonest."""
SLACK = 32
"""Bytes that a character, a number or a date may still need where a reply is to be closed."""


class ConstrainedLM:
    """A causal LM whose replies parse, because no token that would break the schema can be chosen.

    A reply that comes near its longest length is led to its end: open strings, lists and objects
    are closed. Such a reply parses too, and is told apart.

    Args:
        name: a folder, a packaged model or a hub name.
        dtype: ``float32`` or ``bfloat16``; None: the first on a CPU, the second elsewhere.
        device: where to run.
        max_new_tokens: longest reply.
        batch_size: prompts that are answered at once.

    Raises:
        ValueError: the model cannot be loaded, or the device is not to be had.
    """

    def __init__(
        self,
        name: str,
        dtype: str | None = None,
        device: str = "cpu",
        max_new_tokens: int = 1536,
        batch_size: int = 8,
    ) -> None:
        self.max_new_tokens, self.batch_size = max_new_tokens, batch_size
        self.lm = load_base_model(name, dtype or ("float32" if device == "cpu" else "bfloat16"))
        try:
            self.lm.to(torch.device(device))
        except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
            raise ValueError(f"device {device!r}: {error}") from None
        self.tokenizer = AutoTokenizer.from_pretrained(resolve_model(name))
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.vocabulary = self.lm.get_output_embeddings().weight.shape[0]
        self.grammar_tokens = from_tokenizer(self.tokenizer, n_vocab=self.vocabulary)

    def generate(self, prompts: Sequence[str], schema: dict[str, Any]) -> list[tuple[str, bool]]:
        """Greedy replies to one user message each.

        Args:
            prompts: user messages, put into the model's chat template.
            schema: JSON schema of a reply.

        Returns:
            JSON without white space, and whether the LM ended it by itself.

        Raises:
            ValueError: a prompt is too long for the model, or the schema not to be understood, or
                its emptiest reply longer than ``max_new_tokens``.
        """
        texts = [self._chat(prompt) for prompt in prompts]
        # from here on closing takes no more tokens than are left: every token is a byte or more
        close_at = self.max_new_tokens - len(json.dumps(emptiest(schema))) - SLACK
        if close_at < 0:
            raise ValueError(f"max_new_tokens: {self.max_new_tokens} given, {-close_at} too few")
        lengths = [len(self._encode([text]).input_ids[0]) for text in texts]
        self._check_lengths(lengths)
        grammar = self._grammar(schema)
        order = sorted(range(len(texts)), key=lengths.__getitem__)  # little padding
        replies: list[tuple[str, bool]] = [("", False)] * len(texts)
        batches = range(0, len(texts), self.batch_size)
        for first in tqdm(batches, desc="language model", leave=False, disable=len(batches) < 2):
            rows = order[first : first + self.batch_size]
            found = self._batch([texts[row] for row in rows], grammar, close_at)
            for row, reply in zip(rows, found, strict=True):
                replies[row] = reply
        return replies

    def _chat(self, prompt: str) -> str:
        if self.tokenizer.chat_template is None:
            return (self.tokenizer.bos_token or "") + prompt + "\n"
        message = [{"role": "user", "content": prompt}]
        return self.tokenizer.apply_chat_template(
            message, tokenize=False, add_generation_prompt=True
        )

    def _encode(self, texts: list[str], **options: Any) -> Any:
        # the template has written all special tokens
        return self.tokenizer(texts, add_special_tokens=False, **options)

    def _check_lengths(self, lengths: list[int]) -> None:
        limit = getattr(self.lm.config.get_text_config(), "max_position_embeddings", None)
        longest = max(lengths, default=0) + self.max_new_tokens
        if limit is not None and longest > limit:
            raise ValueError(
                f"a prompt and its reply take up to {longest} tokens, the model has {limit}"
            )

    def _grammar(self, schema: dict[str, Any]) -> LLMatcher:
        """What the LM may write: a matcher at its beginning, to be copied."""
        grammar = LLMatcher.grammar_from_json_schema(
            schema, overrides={"whitespace_flexible": False}
        )
        if problem := LLMatcher.validate_grammar(grammar, self.grammar_tokens):
            raise ValueError(f"JSON schema: {problem}")
        return LLMatcher(self.grammar_tokens, grammar)

    @torch.no_grad()
    def _batch(self, texts: list[str], grammar: LLMatcher, close_at: int) -> list[tuple[str, bool]]:
        inputs = self._encode(texts, return_tensors="pt", padding=True, padding_side="left")
        length = inputs.input_ids.shape[1]
        matchers = [grammar.deep_copy() for _ in texts]
        constraint = Constraint(matchers, self.grammar_tokens, length, close_at)
        output = self.lm.generate(
            input_ids=inputs.input_ids.to(self.lm.device),
            attention_mask=inputs.attention_mask.to(self.lm.device),
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            eos_token_id=self.tokenizer.eos_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
            logits_processor=LogitsProcessorList([constraint]),
        )
        return list(constraint.replies(output[:, length:]))


class Constraint(LogitsProcessor):
    """Leaves of the next token's logits only what keeps every reply on its way to the schema.

    Args:
        matchers: one for each prompt of the batch.
        tokens: the tokenizer as the matchers know it.
        prompt_length: tokens of the padded prompts.
        close_at: written tokens from which on replies are led to their end.
    """

    def __init__(
        self, matchers: list[LLMatcher], tokens: LLTokenizer, prompt_length: int, close_at: int
    ) -> None:
        self.matchers, self.tokens = matchers, tokens
        self.prompt_length, self.close_at = prompt_length, close_at
        self.closed = [False] * len(matchers)
        self.closing = {text: tokens.greedy_tokenize(text) for text in CLOSING}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The logits of the next token, [B, V], with minus infinity where it may not be."""
        written = input_ids.shape[1] - self.prompt_length
        rows = [self._allowed(row, ids, written) for row, ids in enumerate(input_ids)]
        allowed = torch.stack(rows).to(scores.device)  # [B, V]
        return scores.masked_fill(~allowed, float("-inf"))

    def _allowed(self, row: int, ids: Tensor, written: int) -> Tensor:
        """Read the last token of a reply, and say which may be the next, [V].

        Raises:
            ValueError: the schema is too much for the matcher.
        """
        matcher = self.matchers[row]
        if written and not matcher.is_stopped():
            matcher.consume_token(int(ids[-1]))
        if matcher.is_error():
            raise ValueError(f"JSON schema: {matcher.get_error()}")
        if matcher.is_stopped():
            return self._only(self.tokens.eos_token)
        if written >= self.close_at:
            self.closed[row] = True
            if (token := self._closer(matcher)) is not None:
                return self._only(token)
        # a byte for every token, 0 where it may not be
        return torch.frombuffer(bytearray(matcher.compute_logit_bias()), dtype=torch.uint8).bool()

    def _only(self, token: int) -> Tensor:
        allowed = torch.zeros(self.tokens.vocab_size, dtype=torch.bool)
        allowed[token] = True
        return allowed

    def _closer(self, matcher: LLMatcher) -> int | None:
        """The token that leads to the end soonest; None inside what has to be written out."""
        possible = [text for text in CLOSING if matcher.validate_tokens(self.closing[text])]
        if "]" in possible and "}" in possible:  # only inside a string, as part of it
            possible = ['"']
        return self.closing[possible[0]][0] if possible else None

    def replies(self, ids: Tensor) -> Iterator[tuple[str, bool]]:
        """The replies of finished rows, [B, T], and whether each ended by itself."""
        for row, closed in zip(ids.tolist(), self.closed, strict=True):
            end = row.index(self.tokens.eos_token) if self.tokens.eos_token in row else len(row)
            yield self.tokens.decode_str(row[:end]), not closed


def emptiest(schema: dict[str, Any]) -> Any:
    """The emptiest value of a schema that has one item in every list, so that none is shorter."""
    kind = schema["type"]
    if kind == "object":
        return {name: emptiest(part) for name, part in schema["properties"].items()}
    if kind == "array":
        return [emptiest(schema["items"])]
    return {"string": "", "boolean": False, "integer": max(schema.get("enum", (0,)))}[kind]

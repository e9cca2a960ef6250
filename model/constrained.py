"""Generates JSON of a given schema with a causal LM.

Shapes: B prompts of a batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedTokenizerFast,
)

from turngraph.configs.extras import extra
from turngraph.configs.models import resolve_model
from turngraph.configs.progress import track
from turngraph.configs.user_error import UserError
from turngraph.model.base_model import load_base_model
from turngraph.model.base_probe import check_base_model

with extra("memory", "--extractor lm needs"):
    from llguidance import LLMatcher, LLTokenizer
    from llguidance.hf import from_tokenizer

CLOSING = ("]", "}", '"', ",")
"""Texts that bring a reply nearer to its end, in the order in which they are tried."""
SLACK = 32
"""Bytes that an unfinished character, number or date may still need before a reply can be
closed."""


class ConstrainedLM:
    """A causal LM whose replies always parse, because tokens that break the schema are masked out.

    A reply that reaches almost ``max_new_tokens`` is closed: its open strings, lists and objects
    are ended. It still parses, and is reported as closed.

    Args:
        name: a folder, a packaged model or a hub name.
        dtype: ``float32`` or ``bfloat16``; None: float32 on a CPU, bfloat16 elsewhere.
        device: device to run on.
        max_new_tokens: most tokens of a reply.
        batch_size: number of prompts in one batch.

    Raises:
        UserError: the model cannot be loaded or has no fast tokenizer, or the device is not
            available.
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
        check_base_model(self.lm)
        try:
            nn.Module.to(self.lm, torch.device(device))
        except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
            raise UserError(f"device {device!r}: {error}") from None
        tokenizer = AutoTokenizer.from_pretrained(resolve_model(name), trust_remote_code=False)
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise UserError(f"model {name!r}: {type(tokenizer).__name__} is not a fast tokenizer")
        self.tokenizer = tokenizer
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.vocabulary = self.lm.get_output_embeddings().weight.shape[0]
        self.grammar_tokens = from_tokenizer(self.tokenizer, n_vocab=self.vocabulary)

    def generate(self, prompts: Sequence[str], schema: dict[str, Any]) -> list[tuple[str, bool]]:
        """Generate one reply to each user message, greedily.

        Args:
            prompts: user messages, put into the model's chat template.
            schema: JSON schema of a reply.

        Returns:
            For each prompt, JSON without white space, and whether the LM ended it by itself
            (otherwise it was closed).

        Raises:
            UserError: a prompt is too long for the model, the schema is not supported, or its
                smallest value is longer than ``max_new_tokens``.
        """
        texts = [self._chat(prompt) for prompt in prompts]
        # closing then takes at most the tokens that are left, as every token has at least a byte
        close_at = self.max_new_tokens - len(json.dumps(smallest_value(schema))) - SLACK
        if close_at < 0:
            raise UserError(f"max_new_tokens: {self.max_new_tokens} given, {-close_at} too few")
        lengths = [len(self._encode([text]).input_ids[0]) for text in texts]
        self._check_lengths(lengths)
        grammar = self._grammar(schema)
        order = sorted(range(len(texts)), key=lengths.__getitem__)  # for less padding
        replies: list[tuple[str, bool]] = [("", False)] * len(texts)
        batches = range(0, len(texts), self.batch_size)
        shown = len(batches) > 1
        for first in track(batches, "language model", "batches", shown=shown, delay=2, leave=False):
            rows = order[first : first + self.batch_size]
            batch_replies = self._batch([texts[row] for row in rows], grammar, close_at)
            for row, reply in zip(rows, batch_replies, strict=True):
                replies[row] = reply
        return replies

    def _chat(self, prompt: str) -> str:
        if self.tokenizer.chat_template is None:
            return (self.tokenizer.bos_token or "") + prompt + "\n"
        message = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(
            message, tokenize=False, add_generation_prompt=True
        )
        assert isinstance(text, str), type(text)
        return text

    def _encode(self, texts: list[str], **options: Any) -> Any:
        # the template contains all special tokens
        return self.tokenizer(texts, add_special_tokens=False, **options)

    def _check_lengths(self, lengths: list[int]) -> None:
        limit = getattr(self.lm.config.get_text_config(), "max_position_embeddings", None)
        longest = max(lengths, default=0) + self.max_new_tokens
        if limit is not None and longest > limit:
            raise UserError(
                f"a prompt and its reply take up to {longest} tokens, the model has {limit}"
            )

    def _grammar(self, schema: dict[str, Any]) -> LLMatcher:
        """Return a matcher of the schema in its start state; every reply gets a copy."""
        grammar = LLMatcher.grammar_from_json_schema(
            schema, overrides={"whitespace_flexible": False}
        )
        if problem := LLMatcher.validate_grammar(grammar, self.grammar_tokens):
            raise UserError(f"JSON schema: {problem}")
        return LLMatcher(self.grammar_tokens, grammar)

    @torch.no_grad()
    def _batch(self, texts: list[str], grammar: LLMatcher, close_at: int) -> list[tuple[str, bool]]:
        inputs = self._encode(texts, return_tensors="pt", padding=True, padding_side="left")
        length = inputs.input_ids.shape[1]
        matchers = [grammar.deep_copy() for _ in texts]
        constraint = Constraint(matchers, self.grammar_tokens, length, close_at)
        output = self.lm.generate(  # type: ignore[operator]  # of each model, not of the base class
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
    """Masks out the logits of tokens that would break the schema.

    Args:
        matchers: one matcher for each prompt of the batch.
        tokens: the tokenizer in llguidance's form.
        prompt_length: number of tokens of a padded prompt.
        close_at: number of generated tokens after which replies are closed.
    """

    def __init__(
        self, matchers: list[LLMatcher], tokens: LLTokenizer, prompt_length: int, close_at: int
    ) -> None:
        self.matchers, self.tokens = matchers, tokens
        self.prompt_length, self.close_at = prompt_length, close_at
        self.closed = [False] * len(matchers)
        self.closing = {text: tokens.greedy_tokenize(text) for text in CLOSING}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Set the logits of forbidden next tokens to minus infinity, [B, V]."""
        written = input_ids.shape[1] - self.prompt_length
        rows = [self._allowed(row, ids, written) for row, ids in enumerate(input_ids)]
        allowed = torch.stack(rows).to(scores.device)  # [B, V]
        return scores.masked_fill(~allowed, float("-inf"))

    def _allowed(self, row: int, ids: Tensor, written: int) -> Tensor:
        """Advance the matcher by a reply's last token; return which tokens may follow, [V].

        Raises:
            UserError: the schema is too large for the matcher.
        """
        matcher = self.matchers[row]
        if written and not matcher.is_stopped():
            matcher.consume_token(int(ids[-1]))
        if matcher.is_error():
            raise UserError(f"JSON schema: {matcher.get_error()}")
        if matcher.is_stopped():
            return self._only(self.tokens.eos_token)
        if written >= self.close_at:
            self.closed[row] = True
            if (token := self._closer(matcher)) is not None:
                return self._only(token)
        # the bias has one byte for each token, 0 if it is forbidden
        return torch.frombuffer(bytearray(matcher.compute_logit_bias()), dtype=torch.uint8).bool()

    def _only(self, token: int) -> Tensor:
        allowed = torch.zeros(self.tokens.vocab_size, dtype=torch.bool)
        allowed[token] = True
        return allowed

    def _closer(self, matcher: LLMatcher) -> int | None:
        """Return the token that closes most; None if an unfinished value must end first."""
        possible = [text for text in CLOSING if matcher.validate_tokens(self.closing[text])]
        if "]" in possible and "}" in possible:  # only inside a string are both possible, as text
            possible = ['"']
        return self.closing[possible[0]][0] if possible else None

    def replies(self, ids: Tensor) -> Iterator[tuple[str, bool]]:
        """Decode the generated ids, [B, T]; yield each reply and whether it ended by itself."""
        for row, closed in zip(ids.tolist(), self.closed, strict=True):
            end = row.index(self.tokens.eos_token) if self.tokens.eos_token in row else len(row)
            yield self.tokens.decode_str(row[:end]), not closed


def smallest_value(schema: dict[str, Any]) -> Any:
    """Return the smallest value of a schema, with one item in every list.

    Closing a reply adds at most as much text as this value has.
    """
    kind = schema["type"]
    if kind == "object":
        return {name: smallest_value(part) for name, part in schema["properties"].items()}
    if kind == "array":
        return [smallest_value(schema["items"])]
    if kind == "string" and "enum" in schema:
        return max(schema["enum"], key=len)
    return {"string": "", "boolean": False, "integer": max(schema.get("enum", (0,)))}[kind]

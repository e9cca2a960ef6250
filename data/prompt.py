"""Assembles the prompt of the paper's figures 5 and 6 as token ids, for training and generation.

Instruction and evidence are the user's turn, dialogue and ``Answer:`` open the assistant's. The
evidence stands between ``prefix`` and ``suffix``, as text or as node states: the same tokens, tags
included, so that rows with and without a graph differ in nothing else.

Text from outside forges no part of a prompt: in a question, an answer or a passage the template's
markers, evidence tags, and ``Question:`` and ``Answer:`` at the start of a line are broken up by a
space behind their first character. All other text is encoded as it is.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from turngraph.data.graph.chain_graph import TokenisedPassage
from turngraph.data.types import Interaction

logger = logging.getLogger(__name__)

FACTS = "Using the following facts:\n"
INSTRUCTION = (
    f"You are a helpful assistant. {FACTS}",
    "Answer the following conversational query as a simple key fact without description:",
)
OPEN_TAG, CLOSE_TAG = "<evidence>", "</evidence>\n"
QUESTION, ANSWER = "Question:", "Answer:"
FIXED_DATE = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}"
"""Stands before templates that print today's date, so that a prompt is the same every day.
The date is the one that Llama's templates have where they know none."""
_EVIDENCE, _DIALOGUE = "\ue000evidence\ue000", "\ue000dialogue\ue000"  # private-use: never in data
_MARKER = re.compile(r"\[/?[A-Z_]+\]|<[^<>\s]+>|\b[A-Z]{2,}:|#{2,} ?\w[\w ]*:")  # as in templates
_TAG = r"</?evidence>"
_TURN = re.compile(
    r"((?:^|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029])[\s\u200b\ufeff]*"
    rf"(?:Q(?={QUESTION[1:]})|A(?={ANSWER[1:]})))"
)
"""The first letter of what begins a line as the dialogue's own lines begin."""


class Prompt:
    """Prompt assembly for one tokenizer.

    Args:
        tokenizer: a fast tokenizer of transformers with a chat template; without one the parts
            are joined plainly.

    Raises:
        ValueError: the tokenizer is not a fast one (offsets are needed), or its template drops
            the content of a message.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not tokenizer.is_fast:
            raise ValueError(f"tokenizer of {tokenizer.name_or_path}: a fast tokenizer is needed")
        self.tokenizer = tokenizer
        # a copy that never makes special tokens: texts are encoded in several threads
        self._plain_backend = deepcopy(tokenizer.backend_tokenizer)
        self._plain_backend.encode_special_tokens = True
        self._anchor = ""
        head, middle, self.end_text = self._template()
        self._marker = self._template_markers(head + middle + self.end_text)
        self.prefix_ids = self._encode(head, special=True)
        self._anchor = self._find_anchor()
        self._gap = middle[len(middle.rstrip(" ")) :]
        self._middle_ids = self._encode(middle.rstrip(" "), special=True)
        end_ids = self._encode(self.end_text, special=True)
        if not end_ids and tokenizer.eos_token_id is None:
            raise ValueError(f"tokenizer of {tokenizer.name_or_path}: no end-of-turn token")
        self.end_id: int = end_ids[0] if end_ids else tokenizer.eos_token_id

    def _template(self) -> tuple[str, str, str]:
        """Return the template's text before the evidence, before the dialogue, and at the end."""
        user = INSTRUCTION[0] + _EVIDENCE + INSTRUCTION[1]
        if self.tokenizer.chat_template is None:
            bos = self.tokenizer.bos_token or ""
            return bos + INSTRUCTION[0], INSTRUCTION[1] + "\n", self.tokenizer.eos_token or ""
        messages = [
            {"role": "user", "content": user},
            {"role": "assistant", "content": _DIALOGUE},
        ]
        template = self.tokenizer.get_chat_template()
        if "strftime_now" in template:
            template = FIXED_DATE + template
        render = partial(self.tokenizer.apply_chat_template, chat_template=template)
        text = render(messages, tokenize=False, continue_final_message=True)
        closed = render(messages, tokenize=False)
        parts = re.split(f"{_EVIDENCE}|{_DIALOGUE}", text)
        if len(parts) != 3 or parts[2] or _DIALOGUE not in closed:
            raise ValueError(
                f"chat template of {self.tokenizer.name_or_path}: it does not keep the content of "
                "a user's and an assistant's message, or cannot be continued in the last one"
            )
        return parts[0], parts[1], closed.split(_DIALOGUE)[1].strip()

    def _template_markers(self, template: str) -> re.Pattern[str]:
        """Match the template's markers that are plain text to the tokenizer ("[/INST]")."""
        special = set(self.tokenizer.all_special_tokens)
        markers = {m for m in _MARKER.findall(template) if m not in special}
        return re.compile("|".join([_TAG, *map(re.escape, sorted(markers))]))

    def _find_anchor(self) -> str:
        """Find the text that is set before one that continues another, and cut off its tokens.

        SentencePiece tokenizers (Mistral) put a space before every text; behind a line break, which
        ends the text before, it is theirs and not the text's.
        """
        first = self.tokenizer.convert_ids_to_tokens(self._encode("a")[:1])
        return "\n" if "".join(first).startswith(("▁", "Ġ")) else ""

    def _encode(self, text: str, special: bool = False) -> list[int]:
        return self._encode_batch([text], special)[0][0]

    def _encode_batch(
        self, texts: Sequence[str], special: bool = False
    ) -> list[tuple[list[int], list[int]]]:
        """Return token ids and token ends, in characters, of texts that continue others.

        Unless ``special``, no special token id comes out of them.
        """
        backend = self.tokenizer.backend_tokenizer if special else self._plain_backend
        encodings = backend.encode_batch(
            [self._anchor + text for text in texts], add_special_tokens=False
        )
        shift, batch = len(self._anchor), []
        for encoding in encodings:
            ends = [end - shift for _, end in encoding.offsets]
            first = bisect_right(ends, 0) if shift else 0
            batch.append((encoding.ids[first:], ends[first:]))
        return batch

    def plain(self, text: str) -> str:
        """Break up what a text from outside would forge of a prompt.

        That is every marker of the template, every evidence tag, and ``Question:`` or ``Answer:``
        at the start of a line, which would be a turn that nobody has said.
        """
        if not self._marker.search(text) and not _TURN.search(text):
            return text
        logger.warning("a prompt marker in the data was broken up: %.80r", text)
        text = _TURN.sub(r"\1 ", text)
        return self._marker.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    def tokenise_passages(self, texts: Sequence[str]) -> list[TokenisedPassage]:
        """Tokenise evidence texts, already ``plain``, with their tags."""
        encodings = self._encode_batch([OPEN_TAG + text + CLOSE_TAG for text in texts])
        shift = len(OPEN_TAG)
        return [
            TokenisedPassage(ids, [end - shift if end > shift else 0 for end in ends])
            for ids, ends in encodings
        ]

    def tokenise_question(self, question: str) -> TokenisedPassage:
        """Tokenise a question, already ``plain``, without tags."""
        return TokenisedPassage(*self._encode_batch([question])[0])

    def suffix_ids(self, interaction: Interaction, question: str) -> list[int]:
        """Return the token ids after the evidence, up to ``Answer:``."""
        plain = self.plain
        turns = [f"{QUESTION} {plain(q)}\n{ANSWER} {plain(a)}\n" for q, a in interaction]
        dialogue = "".join(turns) + f"{QUESTION} {plain(question)}\n{ANSWER}"
        return self._middle_ids + self._encode(self._gap + dialogue)

    def target_ids(self, answer: str) -> list[int]:
        """Return the token ids of an answer after ``Answer:``, with the end-of-turn token."""
        return [*self._encode(f" {self.plain(answer)}"), self.end_id]

    def answer_text(self, ids: Sequence[int]) -> str:
        """Decode generated ids up to the end of the turn or of the line."""
        ids = list(ids)
        stops = {self.end_id, self.tokenizer.eos_token_id}
        end = next((i for i, token in enumerate(ids) if token in stops), len(ids))
        text: str = self.tokenizer.decode(ids[:end], skip_special_tokens=True)
        return text.strip().split("\n")[0].strip()

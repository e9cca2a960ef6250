"""Assembles the prompt of the paper's figures 5 and 6 as token ids, for training and generation.

The user's message is instruction and evidence; the assistant's message begins with the dialogue and
``Answer:``. The evidence is between ``prefix`` and ``suffix``, as text or as node states, and has
the same tokens, tags included, so that prompts with and without a graph differ in nothing else. For
a reader (``model.layer``) the dialogue stands before the evidence, so that each passage can be read
after the question.

A text from outside cannot forge a part of the prompt: in a question, an answer or a passage, a
space after the first character breaks up the template's markers, evidence tags, and ``Question:``
and ``Answer:`` at the start of a line. All other text is encoded as it is.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from turngraph.configs.user_error import UserError
from turngraph.data.graph.chain_graph import TokenisedPassage
from turngraph.data.types import Interaction

logger = logging.getLogger(__name__)

FACTS = "Using the following facts:\n"
INSTRUCTION = (
    f"You are a helpful assistant. {FACTS}",
    "Answer the following conversational query as a simple key fact without description:",
)
QUESTION_FIRST = (
    "Answer the last question as a simple key fact without description.\n",
    f"\n{FACTS}",
)
"""Texts before the dialogue and before the evidence, if the dialogue comes first."""
OPEN_TAG, CLOSE_TAG = "<evidence>", "</evidence>\n"
QUESTION, ANSWER = "Question:", "Answer:"
FIXED_DATE = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}"
"""Precedes templates that print today's date, so that a prompt is the same every day. Llama's
templates use this date where they cannot get today's."""
_EVIDENCE, _DIALOGUE = "\ue000evidence\ue000", "\ue000dialogue\ue000"  # private-use characters
_MARKER = re.compile(r"\[/?[A-Z_]+\]|<[^<>\s]+>|\b[A-Z]{2,}:|#{2,} ?\w[\w ]*:")  # of chat templates
_TAG = r"</?evidence>"
_UNSEEN = (  # controls, blanks, and Unicode's Default_Ignorable_Code_Point: nobody sees that one
    # stands before a word
    "\\x00-\\x08\\x0e-\\x1b\\x7f-\\x84\\x86-\\x9f\\u2800\\ufff9-\\ufffb"
    "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u202a-\\u202e"
    "\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufff8\\U0001bca0-\\U0001bca3"
    "\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
_SPACE, _BREAK = rf"[\s{_UNSEEN}]", r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]"
_TURN = re.compile(
    rf"((?:^|(?<!{_SPACE})(?>{_SPACE}*?{_BREAK})){_SPACE}*+"
    rf"(?:Q(?={QUESTION[1:]})|A(?={ANSWER[1:]})))"
)
"""The first letter of a line that begins like a line of the dialogue. A run of spaces and line
breaks is read once: a search from each of its characters would take minutes for 100,000."""


class Prompt:
    """Assembles prompts for one tokenizer.

    Args:
        tokenizer: a fast tokenizer of transformers; without a chat template the parts are
            concatenated.
        question_first: put the dialogue before the evidence, not after it.

    Attributes:
        prefix_ids: token ids before the evidence, or before the dialogue where that comes first;
            equal for all prompts.
        end_id: token that ends a turn: the template's, or the tokenizer's end token where the
            template has none that is a token of its own.
        end_text: text of the chat template after the answer.

    Raises:
        UserError: the tokenizer is not a fast one (offsets are needed), its template drops the
            content of a message, or it has no end token.
    """

    def __init__(self, tokenizer: Any, question_first: bool = False) -> None:
        if not tokenizer.is_fast:
            raise UserError(f"tokenizer of {tokenizer.name_or_path}: a fast tokenizer is needed")
        self.tokenizer, self.question_first = tokenizer, question_first
        # a copy that encodes special tokens as text; a switch would not be safe between threads
        self._plain_backend = deepcopy(tokenizer.backend_tokenizer)
        self._plain_backend.encode_special_tokens = True
        self._anchor = ""
        head, middle, tail, self.end_text = self._template()
        self._marker = self._template_markers(head + middle + tail + self.end_text)
        self.prefix_ids = self._encode(head, special=True)
        self._anchor = self._find_anchor()
        self._gap = middle[len(middle.rstrip(" ")) :]
        self._middle_ids = self._encode(middle.rstrip(" "), special=True)
        self._tail_ids = self._encode(tail, special=True)
        # a marker that the tokenizer does not have as a token, of a foreign template, ends no turn
        added_ids = set(tokenizer.added_tokens_decoder)
        end_ids = [id_ for id_ in self._encode(self.end_text, special=True) if id_ in added_ids]
        if not end_ids and tokenizer.eos_token_id is None:
            raise UserError(f"tokenizer of {tokenizer.name_or_path}: no end-of-turn token")
        self.end_id: int = end_ids[0] if end_ids else tokenizer.eos_token_id

    @property
    def largest_id(self) -> int:
        """The largest token id of any prompt; special tokens come from the template alone."""
        special = {
            id_ for id_, token in self.tokenizer.added_tokens_decoder.items() if token.special
        }
        plain_ids = set(self.tokenizer.get_vocab().values()) - special
        fixed = [*self.prefix_ids, *self._middle_ids, *self._tail_ids, self.end_id]
        return max(plain_ids.union(fixed))

    def _template(self) -> tuple[str, str, str, str]:
        """Return the template around evidence and dialogue: before, between, after, at the end.

        What stands after both is empty unless the dialogue comes first, and ends with ``Answer:``.
        """
        first, second, reply = _EVIDENCE, INSTRUCTION[1], _DIALOGUE
        if self.question_first:
            first, second, reply = _DIALOGUE, QUESTION_FIRST[1] + _EVIDENCE, ANSWER
        instruction = QUESTION_FIRST[0] if self.question_first else INSTRUCTION[0]
        if self.tokenizer.chat_template is None:
            bos, eos = self.tokenizer.bos_token or "", self.tokenizer.eos_token or ""
            if self.question_first:
                return bos + instruction, QUESTION_FIRST[1], ANSWER, eos
            return bos + instruction, INSTRUCTION[1] + "\n", "", eos
        messages = [
            {"role": "user", "content": instruction + first + second},
            {"role": "assistant", "content": reply},
        ]
        template = self.tokenizer.get_chat_template()
        if "strftime_now" in template:
            template = FIXED_DATE + template
        render = partial(self.tokenizer.apply_chat_template, chat_template=template)
        text = render(messages, tokenize=False, continue_final_message=True)
        closed = render(messages, tokenize=False)
        parts = re.split(f"{_EVIDENCE}|{_DIALOGUE}", text)
        ending = text.rpartition(_EVIDENCE)[2] if self.question_first else _DIALOGUE
        if len(parts) != 3 or bool(parts[2]) != self.question_first or ending not in closed:
            raise UserError(
                f"chat template of {self.tokenizer.name_or_path}: must keep the content of a "
                "user's and an assistant's message, and let the assistant's message be continued"
            )
        return parts[0], parts[1], parts[2], closed.rpartition(ending)[2].strip()

    def _template_markers(self, template: str) -> re.Pattern[str]:
        """Return a pattern of markers to break up: evidence tags, and those of the template.

        Special tokens are left out, as texts never produce them; "[/INST]" is plain text to some
        tokenizers.
        """
        special = set(self.tokenizer.all_special_tokens)
        markers = {m for m in _MARKER.findall(template) if m not in special}
        return re.compile("|".join([_TAG, *map(re.escape, sorted(markers))]))

    def _find_anchor(self) -> str:
        """Return a text to put before every encoded text, whose own tokens are then removed.

        SentencePiece tokenizers (Mistral) add a space before every text, also before one that
        continues another. With a line break in front, the space comes before the line break.
        """
        first = self.tokenizer.convert_ids_to_tokens(self._encode("a")[:1])
        return "\n" if "".join(first).startswith(("▁", "Ġ")) else ""

    def _encode(self, text: str, special: bool = False) -> list[int]:
        return self._encode_batch([text], special)[0][0]

    def _encode_batch(
        self, texts: Sequence[str], special: bool = False
    ) -> list[tuple[list[int], list[int]]]:
        """Return token ids and token ends, in characters, of texts that continue others.

        Special tokens are produced only if ``special`` is true.
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
        """Break up what could forge a part of the prompt in a text from user or data.

        That is every marker of the chat template, every evidence tag, and ``Question:`` or
        ``Answer:`` at the start of a line, which would be a turn that nobody has said.
        """
        if not self._marker.search(text) and not _TURN.search(text):
            return text
        markers = {match[0] for match in self._marker.finditer(text)}
        markers |= {QUESTION if m[0][-1] == "Q" else ANSWER for m in _TURN.finditer(text)}
        # without the text: it may come from a memory graph, which must not get into logs
        logger.warning("prompt markers in the data, read as text: %s", ", ".join(sorted(markers)))
        text = _TURN.sub(r"\1 ", text)
        return self._marker.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    def tokenise_passages(self, texts: Sequence[str]) -> list[TokenisedPassage]:
        """Tokenise texts of passages, which went through ``plain``, with evidence tags."""
        encodings = self._encode_batch([OPEN_TAG + text + CLOSE_TAG for text in texts])
        shift = len(OPEN_TAG)
        return [
            TokenisedPassage(ids, [max(end - shift, 0) for end in ends]) for ids, ends in encodings
        ]

    def tokenise_question(self, question: str) -> TokenisedPassage:
        """Tokenise a question, which went through ``plain``, without tags."""
        return TokenisedPassage(*self._encode_batch([question])[0])

    def dialogue(self, interaction: Interaction, question: str) -> str:
        """Return the dialogue up to the question; each of its texts goes through ``plain``."""
        plain = self.plain
        turns = [f"{QUESTION} {plain(q)}\n{ANSWER} {plain(a)}\n" for q, a in interaction]
        return "".join(turns) + f"{QUESTION} {plain(question)}"

    def parts(self, interaction: Interaction, question: str) -> tuple[list[int], list[int]]:
        """Return the token ids before the evidence, and those after it, up to ``Answer:``."""
        dialogue = self.dialogue(interaction, question)
        if self.question_first:
            ids = self.tokenise_question(dialogue).ids
            return [*self.prefix_ids, *ids, *self._middle_ids], self._tail_ids
        ids = self._encode(self._gap + dialogue + f"\n{ANSWER}")
        return self.prefix_ids, self._middle_ids + ids

    def suffix_ids(self, interaction: Interaction, question: str) -> list[int]:
        """Return the token ids after the evidence, up to ``Answer:``."""
        return self.parts(interaction, question)[1]

    def target_ids(self, answer: str) -> list[int]:
        """Return the token ids of an answer after ``Answer:``, with the end token."""
        return [*self._encode(f" {self.plain(answer)}"), self.end_id]

    def span_text(self, ids: Sequence[int], first: int, last: int) -> str:
        """Decode the tokens first to last of a passage's, without its evidence tags."""
        before, through, whole = (
            self.tokenizer.decode(ids[:end]) for end in (first, last + 1, len(ids))
        )
        text: str = whole.removesuffix(CLOSE_TAG)
        return text[max(len(before), len(OPEN_TAG)) : len(through)].strip().split("\n")[0].strip()

    def answer_text(self, ids: Sequence[int]) -> str:
        """Decode generated ids up to the end token or the end of the line."""
        ids = list(ids)
        stops = {self.end_id, self.tokenizer.eos_token_id}
        end = next((i for i, token in enumerate(ids) if token in stops), len(ids))
        text: str = self.tokenizer.decode(ids[:end], skip_special_tokens=True)
        return text.strip().split("\n")[0].strip()

"""The text of an answer while its tokens are generated."""

from __future__ import annotations

import re
from unicodedata import category, east_asian_width

from torch import Tensor

from turngraph.data.prompt import Prompt

_BYTE = re.compile("<0x[0-9A-F]{2}>")


class TextStream:
    """Turns generated tokens into text that is never taken back.

    A word waits until no later token can change it.

    Args:
        prompt: decodes the token ids.
        held: give nothing before the end, as the answer may be withheld.
    """

    def __init__(self, prompt: Prompt, held: bool) -> None:
        self.prompt, self.held = prompt, held
        self.ids: list[int] = []
        self.text = ""
        """Text that has been given out."""

    def add(self, ids: Tensor) -> str:
        """Take one more token, [1], and return the text that is settled by it; often ""."""
        self.ids.append(int(ids[0]))
        if self.held:
            return ""
        token = self.prompt.tokenizer.convert_ids_to_tokens(self.ids[-1])
        if _BYTE.fullmatch(token or ""):  # wait for the end of a run of bytes
            return ""
        text = self.prompt.answer_text(self.ids)
        return self._give(text[: settled(text)])

    def end(self, answer: str) -> str:
        """Return what is left of the whole answer.

        Where the tokenizer took back text that was given out, this is the whole answer, and
        ``restarts`` is then true.
        """
        if self.restarts(answer):
            self.text = ""
        return self._give(answer)

    def restarts(self, answer: str) -> bool:
        """Return whether the whole answer differs from what was given out."""
        return not answer.startswith(self.text)

    def _give(self, text: str) -> str:
        new = text[len(self.text) :]
        self.text += new
        return new


def settled(text: str) -> int:
    """Return how many characters of an unfinished text stay as they are, whatever follows.

    Those are whole words; in scripts without spaces, characters.
    """
    for end in range(len(text) - 1, 0, -1):
        if text[end] == " ":
            return end
        unspaced = category(text[end - 1]) == "Lo" and east_asian_width(text[end - 1]) in "WF"
        if unspaced and category(text[end])[0] in "LNP":
            return end
    return 0

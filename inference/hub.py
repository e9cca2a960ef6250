"""Finds checkpoints on the Hugging Face hub; uploads them with a card, without trainer state."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from turngraph.configs.parse import write_config
from turngraph.configs.shipped import find_checkpoint_folder
from turngraph.configs.user_error import UserError
from turngraph.model.checkpoint import CARD, CONFIG, MANIFEST, METRICS, Checkpoint, hashes

TRAINER_STATE = "trainer_state"
FILES = ("*.json", "*.yaml", "*.safetensors", CARD)
"""Files of a checkpoint; nothing else is downloaded, so that no pickle ever is."""
HOW_IT_ANSWERS = {
    "text": "The language model writes its answers.",
    "nodes": "Its graph neural network scores what the evidence says as answers.",
    "reader": "Its graph neural network scores what the evidence says as answers and chooses the "
    "passages from which the language model writes; both decide.",
}
_FAILURES: tuple[type[Exception], ...] = (
    *HfHubHTTPError.__bases__,
    HFValidationError,
    OSError,
)
"""Errors of huggingface_hub, and of the HTTP library that its version uses."""


def find_checkpoint(name: str | Path, *, revision: str | None, token: str | None) -> Path:
    """Return the folder of a checkpoint: a local one, or a download from the hub.

    Args:
        name: a folder; ``reader``, the packaged one; or a repository's name on the hub.
        revision: branch, tag or commit on the hub.
        token: None: the one of ``hf auth login``.

    Raises:
        UserError: there is no such folder, and the hub has no such repository or is out of reach.
    """
    folder = find_checkpoint_folder(name)
    if folder.is_dir():
        if revision is not None:
            raise UserError(
                f"revision {revision!r}: {folder} is a local folder, which has no revisions"
            )
        return folder
    if isinstance(name, Path) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{name}: no such folder")
    try:
        downloaded = snapshot_download(
            name, revision=revision, token=token, allow_patterns=list(FILES)
        )
    except _FAILURES as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{name}: looked for a folder {folder.absolute()} and on the hub: {reason}"
        ) from error
    return Path(downloaded)


def save_checkpoint_files(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write what answering needs of a checkpoint to a new folder, with a model card.

    Raises:
        UserError: the folder holds something already, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists already, give the name of a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(
            checkpoint.folder,
            folder,
            ignore=shutil.ignore_patterns(TRAINER_STATE, CARD),
            dirs_exist_ok=True,
        )
        manifest = checkpoint.manifest | {"files": hashes(folder)}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        (folder / CARD).write_text(model_card(checkpoint), encoding="utf-8")
    except (OSError, shutil.Error) as error:
        raise UserError(f"{folder}: checkpoint cannot be written: {error}") from error
    return folder


def push_checkpoint(
    checkpoint: Checkpoint,
    repo_id: str,
    *,
    private: bool | None,
    revision: str | None,
    token: str | None,
    commit_message: str,
) -> str:
    """Upload a checkpoint and its model card; return the address of the commit.

    Raises:
        UserError: the hub cannot be reached or refuses.
    """
    api = HfApi(token=token)
    with tempfile.TemporaryDirectory() as parent:
        folder = save_checkpoint_files(checkpoint, Path(parent) / "checkpoint")
        try:
            repo = api.create_repo(repo_id, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(repo.repo_id, branch=revision, exist_ok=True)
            done = api.upload_folder(
                repo_id=repo.repo_id,
                folder_path=folder,
                revision=revision,
                commit_message=commit_message,
                allow_patterns=list(FILES),
            )
        except _FAILURES as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(f"{repo_id}: cannot be uploaded to the hub: {reason}") from error
    return str(done.commit_url)


def model_card(checkpoint: Checkpoint) -> str:
    """Write the model card of a checkpoint: what it is, how to load it, its scores and config."""
    config = checkpoint.config
    metrics: dict[str, Any] = checkpoint.metrics
    scores = "".join(
        f"| {name} | {value:.3f} |\n" if isinstance(value, float) else f"| {name} | {value} |\n"
        for name, value in metrics.items()
        if isinstance(value, int | float)
    )
    answers = HOW_IT_ANSWERS[
        "reader" if config.model.layer and config.model.answers == "text" else config.model.answers
    ]
    return f"""---
library_name: turngraph
base_model: {json.dumps(config.model.base_model)}
pipeline_tag: question-answering
tags: [turngraph, graph-neural-network, conversational-question-answering]
---

# A Turngraph checkpoint

Answers questions in a conversation from retrieved evidence. {answers}
Evidence enters as {config.model.evidence}; the base model is `{config.model.base_model}`.

```python
import turngraph

qa = turngraph.load("NAME/OF-THIS-REPOSITORY")
chat = qa.chat(evidence=["Dune was written by Frank Herbert."])
print(chat.ask("Who wrote Dune?").text)
```

## Scores

Measured on the tuning questions while it was trained (`{METRICS}`).

| | |
|---|---|
{scores or "| none | |"}

## Config

`{CONFIG}`:

```yaml
{write_config(config).rstrip()}
```
"""

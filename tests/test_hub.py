"""Checkpoints to the hub and back by huggingface_hub, against a double of its HTTP interface."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from urllib.parse import unquote, urlsplit

import huggingface_hub.constants
import pytest

import turngraph
from turngraph.configs.schema import Config, TrainingConfig
from turngraph.inference import hub as hub_module
from turngraph.inference.api import QA
from turngraph.inference.hub import save_checkpoint_files
from turngraph.model.base_model import empty_base_model, load_base_model
from turngraph.model.checkpoint import check_manifest, hashes, read_checkpoint

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """One repository in memory: made, preloaded, uploaded to, listed and downloaded from."""

    files: ClassVar[dict[str, bytes]] = {}
    requests: ClassVar[list[str]] = []
    known: ClassVar[set[str]] = set()

    def log_message(self, *_: object) -> None:
        """Keep standard error free of requests."""

    def reply(self, value: Any, status: int = 200, **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, content in headers.items():
            self.send_header(name.replace("_", "-"), content)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self) -> None:
        path, body = urlsplit(self.path).path, self.body()
        self.requests.append(f"POST {path}")
        if path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given.get('organization') or 'me'}/{given['name']}"
            self.known.add(name)
            self.reply({"url": f"{self.address}/{name}", "name": name, "id": name})
        elif path == "/api/validate-yaml":
            assert "library_name: turngraph" in json.loads(body)["content"]
            self.reply({"errors": [], "warnings": []})
        elif path.endswith("/preupload/main"):
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for f in json.loads(body)["files"]
            ]
            self.reply({"files": files})
        elif path.endswith("/commit/main"):
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.files[line["value"]["path"]] = content
            url = f"{self.address}/me/qa/commit/{COMMIT}"
            self.reply({"commitUrl": url, "commitOid": COMMIT, "success": True})
        else:
            self.reply({"error": path}, 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.requests.append(f"{self.command} {path}")
        name = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        if name not in self.known:
            missing = {"X_Error_Code": "RepoNotFound", "X_Error_Message": "Repository not found"}
            return self.reply({"error": "Repository not found"}, 401, **missing)
        if path.startswith("/api/models/"):
            siblings = [{"rfilename": name} for name in sorted(self.files)]
            if "/tree/" in path:
                tree = [
                    {"type": "file", "path": name, "size": len(data), "oid": _oid(data)}
                    for name, data in self.files.items()
                ]
                return self.reply(tree)
            return self.reply({"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings})
        _, _, asked = path.partition("/resolve/")
        data = self.files.get(asked.partition("/")[2])
        if data is None:
            return self.reply({}, 404, X_Error_Code="EntryNotFound")
        return self.reply(data, ETag=f'"{_oid(data)}"', X_Repo_Commit=COMMIT)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    Hub.files.clear()
    Hub.requests.clear()
    Hub.known.clear()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    for name, value in (
        ("ENDPOINT", endpoint),
        ("HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}"),
        ("HF_HUB_OFFLINE", False),
        ("HF_HUB_CACHE", str(tmp_path / "hub")),
        ("HF_HUB_DISABLE_XET", True),
    ):
        monkeypatch.setattr(huggingface_hub.constants, name, value)
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", endpoint)
    monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", endpoint, raising=False)
    yield Hub
    server.shutdown()
    thread.join()
    server.server_close()


def test_pushed_and_loaded_again_it_is_the_same_checkpoint(hub: type[Hub], qa: QA) -> None:
    address = qa.push_to_hub("me/qa", token="hf_x")
    assert address.endswith(COMMIT)
    assert hub.files.keys() >= {"config.yaml", "graph_encoder.safetensors", "manifest.json"}
    assert b"library_name: turngraph" in hub.files["README.md"]
    assert all(name.endswith((".json", ".yaml", ".safetensors", ".md")) for name in hub.files)
    hub.files["trainer.pkl"] = b"never downloaded"
    loaded = turngraph.load("me/qa", revision="main", device="cpu", token="hf_x")
    assert loaded.checkpoint.hash == qa.checkpoint.hash
    assert not list(loaded.checkpoint.folder.rglob("*.pkl"))
    assert not any("trainer.pkl" in request for request in hub.requests)


def test_every_option_of_a_push_and_a_load_arrives(
    qa: QA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def record(name: str, answer: object) -> Any:
        return lambda *words, **given: asked.update({name: (words, given)}) or answer

    repo, done = SimpleNamespace(repo_id="org/qa"), SimpleNamespace(commit_url="there")
    api = SimpleNamespace(
        create_repo=record("create_repo", repo),
        create_branch=record("create_branch", None),
        upload_folder=record("upload_folder", done),
    )
    monkeypatch.setattr(hub_module, "HfApi", record("api", api))
    assert qa.push_to_hub("qa") == "there"
    assert "create_branch" not in asked
    assert asked["api"][1] == {"token": None}
    assert asked["create_repo"] == (("qa",), {"private": None, "exist_ok": True})
    options = {"revision": "two", "commit_message": "Better"}
    qa.push_to_hub("qa", private=False, token="hf_x", **options)
    assert asked["api"][1] == {"token": "hf_x"}
    assert asked["create_repo"] == (("qa",), {"private": False, "exist_ok": True})
    assert asked["create_branch"] == (("org/qa",), {"branch": "two", "exist_ok": True})
    uploaded = asked["upload_folder"][1]
    assert uploaded["repo_id"] == "org/qa"
    assert options.items() <= uploaded.items()
    monkeypatch.setattr(hub_module, "snapshot_download", record("download", tmp_path))
    hub_module.find_checkpoint("me/qa", revision="two", token="hf_x")
    assert asked["download"][0] == ("me/qa",)
    assert {"revision": "two", "token": "hf_x"}.items() <= asked["download"][1].items()


def test_the_first_line_of_an_error_of_the_hub_is_told(
    qa: QA, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("\nno way\nRequest ID: 1")

    monkeypatch.setattr(hub_module, "snapshot_download", fail)
    with pytest.raises(ValueError, match=r"me/qa: looked for .* on the hub: no way$"):
        turngraph.load("me/qa")
    api = SimpleNamespace(create_repo=fail)
    monkeypatch.setattr(hub_module, "HfApi", lambda **_: api)
    with pytest.raises(ValueError, match=r"^me/qa: cannot be uploaded to the hub: no way$"):
        qa.push_to_hub("me/qa")


@pytest.mark.parametrize(
    ("answers", "layer", "said"),
    [("text", 0, "text"), ("text", 1, "reader"), ("nodes", 1, "nodes")],
)
def test_a_card_says_how_it_answers_and_how_well(answers: Any, layer: int, said: str) -> None:
    config = Config(training=TrainingConfig(max_steps=0))
    config = replace(config, model=replace(config.model, answers=answers, layer=layer))
    metrics = {"loss": 0.12345, "step": 3, "name": "x"}
    card = hub_module.model_card(cast("Any", SimpleNamespace(config=config, metrics=metrics)))
    assert f"from retrieved evidence. {hub_module.HOW_IT_ANSWERS[said]}\n" in card
    assert "|---|---|\n| loss | 0.123 |\n| step | 3 |\n\n" in card
    bare = hub_module.model_card(cast("Any", SimpleNamespace(config=config, metrics={})))
    assert "|---|---|\n| none | |\n" in bare


def test_a_folder_that_holds_something_is_not_written_to(qa: QA, tmp_path: Path) -> None:
    empty = tmp_path / "deep" / "empty"
    empty.mkdir(parents=True)
    qa.save_pretrained(empty)
    assert check_manifest(empty)
    qa.save_pretrained(tmp_path / "also" / "deep" / "new")
    (tmp_path / "file").touch()
    for folder in (empty, tmp_path / "file"):
        with pytest.raises(ValueError, match="exists already, give the name of a new folder"):
            qa.save_pretrained(folder)


def test_what_resumes_training_is_left_out(graph_checkpoint: str, tmp_path: Path) -> None:
    folder = tmp_path / "last"
    shutil.copytree(graph_checkpoint, folder)
    (folder / "trainer_state").mkdir()
    (folder / "trainer_state" / "progress.json").write_text("{}")
    known = check_manifest(Path(graph_checkpoint))
    (folder / "manifest.json").write_text(json.dumps(known | {"files": hashes(folder)}))
    saved = save_checkpoint_files(read_checkpoint(folder), tmp_path / "saved")
    assert check_manifest(saved) == known


def test_a_file_that_changed_on_the_hub_is_refused(hub: type[Hub], qa: QA) -> None:
    qa.push_to_hub("me/qa", token="hf_x")
    hub.files["config.yaml"] += b"# another\n"
    with pytest.raises(ValueError, match=r"config\.yaml: changed or truncated"):
        turngraph.load("me/qa", device="cpu")


def test_an_unknown_name_says_where_was_looked(hub: type[Hub]) -> None:
    with pytest.raises(ValueError, match=r"me/nothing: looked for a folder .* and on the hub: "):
        turngraph.load("me/nothing")


@pytest.mark.parametrize("load", [load_base_model, empty_base_model])
def test_a_base_model_is_asked_for_once_and_not_by_transformers(
    hub: type[Hub], load: Callable[..., object]
) -> None:
    with pytest.raises(ValueError, match=r"'me/nothing': .* the hub answered 401"):
        load("me/nothing", "float32", trusted=())
    assert [name for name in hub.requests if "nothing" in name] == ["GET /api/models/me/nothing"]


@pytest.mark.parametrize("name", ["./nothing", "/nothing/here", "a/b/c", Path("nothing")])
def test_a_path_is_never_looked_for_on_the_hub(hub: type[Hub], name: Any) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        turngraph.load(name)
    assert not hub.requests


def test_a_local_folder_has_no_revision(graph_checkpoint: str) -> None:
    with pytest.raises(ValueError, match=r"revision 'v1': .* is a local folder"):
        turngraph.load(graph_checkpoint, revision="v1")

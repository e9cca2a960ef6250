"""Tests that an export answers as its checkpoint does, in transformers and over HTTP."""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import turngraph.inference.export
from turngraph import infer
from turngraph.configs.json_files import file_hash
from turngraph.configs.schema import (
    Config,
    EncoderConfig,
    EvidenceConfig,
    LoraConfig,
    ModelConfig,
    TrainingConfig,
)
from turngraph.configs.user_error import UserError
from turngraph.data.jsonlines import write_conversations
from turngraph.inference.export import ANSWER_FIELDS, write_manifest
from turngraph.model.checkpoint import check_manifest, save_checkpoint
from turngraph.model.evidence_model import EvidenceModel
from turngraph.model.make_model import make_model
from turngraph.model.merge import merged_lm
from turngraph.tests.tiny import END_ID, LORA, stir, tiny_conversation, tiny_model

Json = dict[str, Any]
CONVERSATIONS = [tiny_conversation(number) for number in range(3)]
HEAD = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=("q_proj", "lm_head"))
MODELS: dict[str, Json] = {
    "graph": {"lora": LORA, "encoder": EncoderConfig(residual_gate=0.5)},
    "text": {"lora": LORA, "evidence": "text"},
    "zero-shot": {"lora": None, "evidence": "text"},
    "question": {"lora": LORA, "encoder": EncoderConfig(residual_gate=0.5)},
    "adapted head": {"lora": HEAD, "encoder": EncoderConfig(residual_gate=0.5)},
}
EVIDENCE: dict[str, Json] = {"question": {"graph": "reader"}}
NEW_TOKENS = 6


def make_checkpoint(base: str, folder: Path, kind: str) -> str:
    config = Config(
        evidence=EvidenceConfig(memory="random", top_k=4, **EVIDENCE.get(kind, {})),
        model=ModelConfig(base, dtype="float32", **MODELS[kind]),
        training=TrainingConfig(max_steps=0),
    )
    save_checkpoint(stir(make_model(config.model)), config, {}, folder)
    return str(folder)


class Exported:
    """A checkpoint of one kind, its answers and its exports."""

    def __init__(self, kind: str, base: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.input, self.lm, self.prompts = folder / "in.jsonl", folder / "lm", folder / "prompts"
        self.checkpoint = make_checkpoint(base, folder / "checkpoint", kind)
        write_conversations(self.input, CONVERSATIONS)
        common = ["--checkpoint", self.checkpoint, "--input", str(self.input)]
        options = ["--output", str(folder / "p.jsonl"), "--max_new_tokens", str(NEW_TOKENS)]
        infer.main(["answer", *common, *options])
        self.answers = lines(folder / "p.jsonl")
        infer.main(["export", *common, "--output", str(self.lm), "--prompts", str(self.prompts)])
        self.records = lines(self.prompts / "prompts.jsonl")


def lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.fixture(scope="module", params=list(MODELS))
def exported(
    request: pytest.FixtureRequest, tiny_folder: str, tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    return Exported(request.param, tiny_folder, tmp_path_factory.mktemp("export"))


class Server:
    """The part of vLLM's API that the client uses, over transformers and the exported folder."""

    def __init__(self, folder: Path) -> None:
        self.lm = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.bodies: list[Json] = []
        self.lock = threading.Lock()

    @torch.no_grad()
    def ids(self, body: Json) -> list[int]:
        """Return the generated token ids for a request to vLLM."""
        if "prompt" in body:
            ids = torch.tensor([body["prompt"]])
            given: Json = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        else:
            saved = io.BytesIO(base64.b64decode(body["prompt_embeds"], validate=True))
            tensor = torch.load(saved, weights_only=True)
            assert tensor.shape[1] == self.lm.config.hidden_size
            assert tensor.is_floating_point()
            mask = torch.ones(1, len(tensor), dtype=torch.long)
            given = {"inputs_embeds": tensor[None], "attention_mask": mask}
        new = self.lm.generate(**given, max_new_tokens=NEW_TOKENS)[0].tolist()
        return new[len(body.get("prompt", [])) :]

    def text(self, body: Json) -> str:
        return self.tokenizer.decode(self.ids(body), skip_special_tokens=True)

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Serve on a free local port and yield the URL."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server.lock:
                    server.bodies.append(body)
                    reply = json.dumps({"choices": [{"text": server.text(body)}]}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: object) -> None: ...

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/v1/completions"
        finally:
            http.shutdown()
            http.server_close()
            thread.join()


def client() -> Json:
    """Return the names that the client printed in docs/serving.md defines."""
    page = Path(__file__).resolve().parents[1] / "docs" / "serving.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: Json = {"__name__": "client"}
    exec(compile(code, str(page), "exec"), names)
    return names


def test_the_client_of_the_docs_gets_the_checkpoints_answers(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, answers = Server(exported.lm), tmp_path / "answers.jsonl"
    with server.listening() as url:
        client()["main"](str(exported.prompts), str(answers), url)
    given = lines(answers)
    assert [r["answer"] for r in given] == [r["answer"] for r in exported.answers]
    assert len({r["answer"] for r in given}) > 4
    field = "prompt" if MODELS[exported.kind].get("evidence") == "text" else "prompt_embeds"
    for body in server.bodies:
        assert body.keys() == {"model", "temperature", "max_tokens", field}
        assert body["temperature"] == 0
    infer.main(["score", "--predictions", str(answers)])
    assert "H@1" in capsys.readouterr().out


def test_prompts_keep_the_order_and_the_fields_of_predictions(exported: Exported) -> None:
    assert len(exported.records) == len(exported.answers) == 9
    known = {"conversation", "turn", "question", "gold", "evidence", "num_tokens", "source"}
    for record, answer in zip(exported.records, exported.answers, strict=True):
        assert known <= record.keys()
        own = {"prompt", "file", "key"}
        assert all(record[name] == answer[name] for name in record.keys() - own)
        assert not record.keys() & ANSWER_FIELDS
        if "prompt" in record:
            assert len(record["prompt"]) == record["num_tokens"]
        else:
            tensors = load_file(exported.prompts / record["file"])
            assert tensors[record["key"]].shape == (record["num_tokens"], 32)


def test_a_request_body_holds_one_prompt_only(exported: Exported) -> None:
    body = client()["request_body"](exported.records[0], exported.prompts)
    if "prompt" in body:
        assert body["prompt"] == exported.records[0]["prompt"]
        return
    saved = base64.b64decode(body["prompt_embeds"])
    tensor = torch.load(io.BytesIO(saved), weights_only=True)
    record = exported.records[0]
    assert torch.equal(tensor, load_file(exported.prompts / record["file"])[record["key"]])
    assert len(saved) < tensor.nbytes + 4096


def test_the_manifest_names_checkpoint_and_files(exported: Exported) -> None:
    for folder in (exported.lm, exported.prompts):
        manifest = json.loads((folder / "export.json").read_text())
        assert manifest["checkpoint"] == check_manifest(Path(exported.checkpoint))
        assert manifest["dtype"] == "float32"
        written = {path.name for path in folder.iterdir()} - {"export.json"}
        assert manifest["files"].keys() == written
        assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    assert len(manifest["input"]) == 64
    assert {"config.json", "generation_config.json", "model.safetensors"} <= {
        path.name for path in exported.lm.iterdir()
    }
    with pytest.raises(ValueError, match=r"not a checkpoint, it has no manifest\.json"):
        check_manifest(exported.lm)


def test_permissions_of_subfolders_do_not_change(tmp_path: Path) -> None:
    template = tmp_path / "additional_chat_templates" / "tools.jinja"
    template.parent.mkdir()
    mode = template.parent.stat().st_mode
    template.touch(0o600)
    write_manifest(tmp_path, {})
    assert template.parent.stat().st_mode == mode
    assert template.stat().st_mode == (tmp_path / "export.json").stat().st_mode


def test_generation_is_greedy_and_ends_where_a_turn_ends(exported: Exported) -> None:
    config = json.loads((exported.lm / "generation_config.json").read_text())
    assert config["eos_token_id"] == [END_ID]
    assert config["pad_token_id"] == END_ID
    assert not config.get("do_sample", False)
    assert AutoTokenizer.from_pretrained(exported.lm).chat_template


def test_whatever_ends_an_answer_of_the_base_model_ends_one_of_the_export() -> None:
    model = tiny_model(evidence="text")
    known = model.causal_lm.generation_config
    for ends, expected in (([77, END_ID], [END_ID, 77]), (5, [END_ID, 5]), (None, [END_ID])):
        known.eos_token_id = ends
        assert model.end_ids(END_ID) == expected
    known.bos_token_id, known.eos_token_id = 4, [77]
    config = merged_lm(model, torch.float32, END_ID).generation_config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (4, [1, 77], END_ID)


def test_a_tied_head_that_was_adapted_is_untied(exported: Exported, tiny_folder: str) -> None:
    tied = exported.kind != "adapted head"
    assert json.loads((exported.lm / "config.json").read_text())["tie_word_embeddings"] is tied
    weights = load_file(exported.lm / "model.safetensors")
    base = load_file(Path(tiny_folder) / "model.safetensors")
    name = "model.embed_tokens.weight"
    assert torch.equal(weights[name], base[name])
    assert ("lm_head.weight" in weights) is not tied


def test_weights_are_summed_in_float32_and_rounded_once() -> None:
    model = stir(tiny_model(evidence="text", dtype="bfloat16", lora=HEAD))
    for parameter in model.lm.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()
    layer = model.lm.get_submodule("base_model.model.model.layers.1.self_attn.q_proj")
    b, a = layer.lora_B["default"].weight, layer.lora_A["default"].weight
    assert b.dtype == torch.float32
    exact = layer.base_layer.weight.float() + 8 / 4 * b @ a
    merged = merged_lm(model, torch.bfloat16, END_ID)
    assert {weight.dtype for weight in merged.state_dict().values()} == {torch.bfloat16}
    assert not any(weight.requires_grad for weight in merged.parameters())
    found = merged.model.layers[1].self_attn.q_proj.weight
    assert torch.equal(found, exact.bfloat16())
    assert not torch.equal(found, exact)


def test_an_export_that_cannot_be_written_leaves_nothing(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = MagicMock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("turngraph.inference.export.write_model", full)
    output = str(tmp_path / "out" / "lm")
    with pytest.raises(UserError, match=r"lm: cannot be written: .*No space left"):
        infer.main(["export", "--checkpoint", exported.checkpoint, "--output", output])
    assert list((tmp_path / "out").iterdir()) == []


def test_existing_folders_are_never_overwritten(exported: Exported, tmp_path: Path) -> None:
    before = (exported.lm / "export.json").read_bytes()
    common = ["export", "--checkpoint", exported.checkpoint]
    with pytest.raises(ValueError, match="exists already"):
        infer.main([*common, "--output", str(exported.lm)])
    assert (exported.lm / "export.json").read_bytes() == before
    with pytest.raises(ValueError, match="export needs --output or --prompts"):
        infer.main(common)
    with pytest.raises(ValueError, match="--prompts needs --input"):
        infer.main([*common, "--prompts", str(tmp_path / "p")])
    for inner in ("out", "out/prompts"):
        folders = ["--output", str(tmp_path / "out"), "--prompts", str(tmp_path / inner)]
        with pytest.raises(ValueError, match=r"--prompts .*: needs a folder outside --output's"):
            infer.main([*common, "--input", str(exported.input), *folders])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("spare", [1, 0])
def test_prompts_as_long_as_the_model_are_reported(
    spare: int,
    exported: Exported,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An answer needs a position too."""
    if "prompt" not in exported.records[0]:
        return
    longest = max(len(record["prompt"]) for record in exported.records)
    monkeypatch.setattr(EvidenceModel, "max_tokens", longest + spare)
    common = ["--checkpoint", exported.checkpoint, "--input", str(exported.input)]
    infer.main(["export", *common, "--prompts", str(tmp_path / "p")])
    said = f"the model has {longest} positions: a server refuses the longest prompt"
    assert (said in caplog.text) == (spare == 0)
    assert ("a server refuses" in caplog.text) == (spare == 0)


def test_many_prompts_are_spread_over_files(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "prompt" in exported.records[0]:
        return
    monkeypatch.setattr(turngraph.inference.export, "FILE_BYTES", 3 * 100 * 32 * 4)
    common = ["--checkpoint", exported.checkpoint, "--input", str(exported.input)]
    infer.main(["export", *common, "--prompts", str(tmp_path / "p")])
    records = lines(tmp_path / "p" / "prompts.jsonl")
    assert len({record["file"] for record in records}) > 1
    for one, other in zip(records, exported.records, strict=True):
        tensors = [
            load_file(folder / record["file"])[record["key"]]
            for folder, record in ((tmp_path / "p", one), (exported.prompts, other))
        ]
        assert torch.equal(*tensors)


def test_what_is_written_has_the_type_that_is_asked_for(exported: Exported, tmp_path: Path) -> None:
    if exported.kind != "graph":
        pytest.skip("one kind is enough")
    common = ["--checkpoint", exported.checkpoint, "--input", str(exported.input)]
    folders = [tmp_path / "lm", tmp_path / "prompts"]
    folders[0].mkdir()  # an empty folder may be there
    options = ["--output", str(folders[0]), "--prompts", str(folders[1]), "--dtype", "bfloat16"]
    infer.main(["export", *common, *options])
    for folder in folders:
        [file] = folder.glob("*.safetensors")
        assert {tensor.dtype for tensor in load_file(file).values()} == {torch.bfloat16}
        assert json.loads((folder / "export.json").read_text())["dtype"] == "bfloat16"


def test_a_quantized_base_model_is_reported(
    tiny_folder: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = make_checkpoint(tiny_folder, tmp_path / "checkpoint", "text")
    config = Path(checkpoint) / "config.yaml"
    config.write_text(config.read_text().replace("quantization: none", "quantization: 4bit"))
    manifest = json.loads((Path(checkpoint) / "manifest.json").read_text())
    manifest["files"]["config.yaml"] = file_hash(config)
    (Path(checkpoint) / "manifest.json").write_text(json.dumps(manifest))
    infer.main(["export", "--checkpoint", checkpoint, "--output", str(tmp_path / "lm")])
    assert "trained on a base model in 4bit" in caplog.text
    assert (tmp_path / "lm" / "model.safetensors").is_file()

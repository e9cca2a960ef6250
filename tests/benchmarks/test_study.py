"""The study: its rows, runs that are never repeated, its numbers, its page, the peer's row."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from turngraph import infer, train
from turngraph.benchmarks.study import gretriever, hits, run_study, runs
from turngraph.benchmarks.study.config import Size, Study, read_study, row_config
from turngraph.benchmarks.study.runs import STATE, chosen_runs
from turngraph.benchmarks.study.runs import study_runs as runs_of
from turngraph.benchmarks.tables import cell
from turngraph.configs.parse import write_config
from turngraph.configs.schema import Config
from turngraph.data.cli import EXIT_GO_ON
from turngraph.data.jsonlines import write_conversations
from turngraph.data.scoring.predictions import unfinished
from turngraph.data.scoring.score import Estimate
from turngraph.data.sources import convmix
from turngraph.tests.runs import command, options
from turngraph.tests.tiny import tiny_base, tiny_conversation, tiny_tokenizer

STUDIES = sorted(Path(run_study.__file__).parent.glob("*.yaml"))
MODULES = {
    "turngraph.train": train.main,
    "turngraph.infer": infer.main,
    "turngraph.benchmarks.study.gretriever": gretriever.main,
}
Calls = list[list[str]]

pytestmark = pytest.mark.usefixtures("fresh_accelerator")


@cache
def all_configs(name: str) -> dict[str, dict[str, Config]]:
    """The config of each trained row of a shipped study, by size."""
    found = read_study(name)
    trained = [row for row in found.rows if row.checkpoint_of is None]
    return {
        size: {row.name: row_config(found, found.sizes[size], row, 7) for row in trained}
        for size in found.sizes
    }


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_row_of_every_size_is_a_config(path: Path) -> None:
    for configs in all_configs(path.stem).values():
        for config in configs.values():
            assert config.training.seed == 7
            assert config.data.tune is None
    assert "#" in path.read_text(encoding="utf-8")


def test_the_core_rows_are_the_papers_and_the_readers() -> None:
    found = read_study("sqa")
    core = [row.name for row in found.rows if row.core]
    papers = ["text", "text_memory", "graph", "graph_memory", "zero_shot"]
    assert core == [*papers, "text_passages", "reader"]
    assert len(found.seeds) == 3
    for said in all_configs("sqa").values():
        assert said["text_memory"].evidence == said["graph_memory"].evidence
        assert len({config.training.max_new_tokens for config in said.values()}) == 1


@pytest.mark.parametrize("name", ["sqa", "convmix", "worldfacts", "hybridqa"])
def test_every_row_of_a_shipped_study_fixes_length_and_query(name: str) -> None:
    """Rows answer with the same limit, which no gold answer moves, and the study's own Q_t."""
    for configs in all_configs(name).values():
        rows = list(configs.values())
        assert all(config.training.max_new_tokens is not None for config in rows)
        assert {config.evidence.history_weight for config in rows} == {1.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ", line 1: a mapping of fields is needed"),
        ("title: x\n", ", line 1: field config is missing"),
        ("rows:\n- name: a\n  cor: true\n", ", line 3, field rows[0].cor: unknown; did you mean"),
        ("rows:\n- name: a\n", ", line 2, field rows[0]: field rows[0].label is missing"),
        ("rows:\n- {name: A, label: A}\n", ", line 2, field rows[0]: rows.name: 'A' given"),
        ("sizes:\n  s: {num_seeds: x}\n", ", line 2, field sizes.s.num_seeds: 'x' given, must be"),
        ("seeds: [0, 1.5]\n", ", line 1, field seeds[1]: 1.5 given, must be a whole number"),
    ],
)
def test_what_is_wrong_in_a_study_is_named_with_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="^" + re.escape(f"study {path}{message}")):
        read_study(path)


@pytest.fixture(scope="module")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study_data")
    write_conversations(folder / "train.jsonl", [tiny_conversation(n) for n in range(4)])
    write_conversations(folder / "dev.jsonl", [tiny_conversation(n) for n in (4, 5)])
    return folder


def write_study(folder: Path, base_model: str, data: Path, **changes: Any) -> Path:
    """A study of five rows on a tiny model, and the config that they start from."""
    folder.mkdir(exist_ok=True)
    given = options(base_model, data, folder / "unused", data__tune="null")
    config = train.parse_train_options(given)[1]
    (folder / "base.yaml").write_text(write_config(config))
    plain = {"model.evidence": "text"}
    rows = [
        {"name": "text", "label": "text", "core": True, "overrides": plain},
        {"name": "graph", "label": "graph", "core": True},
        {"name": "untrained", "label": "untrained", "core": True,
         "overrides": plain | {"model.lora": None, "training.max_steps": 0}},
        {"name": "shuffled", "label": "shuffled", "checkpoint_of": "graph",
         "answer": {"cut_edges": "shuffle"}},
    ]  # fmt: skip
    values = {
        "title": "Tiny",
        "config": str(folder / "base.yaml"),
        "data": str(data),
        "make_data": "make {part} {output}",
        "rows": rows,
        "sizes": {"smoke": {"num_questions": 6, "overrides": {"training.max_steps": 2}}},
        "seeds": [0, 1],
        "baselines": ["text", "graph"],
        "claims": [{"text": "the graph is better", "row": "graph", "than": "text"}],
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(values | changes))
    return path


def argv_of(folder: Path, base_model: str, data: Path, **changes: Any) -> list[str]:
    """The options of such a study, which writes into the folder ``out``."""
    path = write_study(folder / "s", base_model, data, **changes)
    return ["--config", str(path), "--size", "smoke", "--output", str(folder / "out")]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Run the study's commands in this process and record them."""
    found: Calls = []

    def call(command: list[str], log: Path, stop: object) -> int:
        found.append(command)
        start = command.index("-m") + 1
        MODULES[command[start]](command[start + 1 :])
        return 0

    monkeypatch.setattr(runs, "call", call)
    return found


@pytest.mark.slow
def test_from_rows_to_the_page(
    tiny_folder: str, small_data: Path, tmp_path: Path, calls: Calls, capsys: Any
) -> None:
    argv, output = argv_of(tmp_path, tiny_folder, small_data), tmp_path / "out"
    run_study.main([*argv, "--plan"])
    assert "0 of 11 runs are done" in capsys.readouterr().out
    run_study.main(argv)
    assert len(calls) == 11  # 2 rows x 2 seeds, the untrained, each answered; and the shuffled
    page = (output / "study.md").read_text()
    for words in (
        "| text | 2 |",
        "| untrained | – |",
        "| shuffled | 1 |",
        "| the graph is better |",
    ):
        assert words in page
    assert f"{' '.join(argv)}`" in page
    numbers = json.loads((output / "study.json").read_text())
    assert numbers["graph"]["answer_in_evidence"]["mean"] == pytest.approx(1.0)
    assert set(numbers["shuffled"]["minus"]) == {"text", "graph"}
    turns = page.partition("## By turn, H@1\n\n| row | turn 1+ (6) |\n|---|---|\n")[2]
    assert turns.startswith(f"| text | {cell(Estimate(**numbers['text']['hit_at_1']))} |\n")
    hits.main([str(output / "hits.csv"), "--rows", "shuffled"])
    own, minus = (numbers["shuffled"][name] for name in ("hit_at_1", "minus"))
    found = capsys.readouterr().out.strip().split("\n")[-1].split("|")
    assert found[3].strip() == cell(Estimate(**own))
    assert found[6].strip() == cell(Estimate(**minus["text"]["estimate"]), "+")
    run_study.main(argv)
    run_study.main([*argv, "--rows", "text", "--seeds", "1"])
    assert len(calls) == 11  # nothing is repeated
    assert (output / "study.md").read_text() == page
    run_study.main([*argv, "--plan"])
    assert "11 of 11 runs are done" in capsys.readouterr().out

    # what is finished is no more what the study would make
    config, graph = (next(output.glob(f"train/{row}-seed0*")) for row in ("text", "graph"))
    before = (config / "config.yaml").read_text()
    (config / "config.yaml").write_text(before.replace("max_grad_norm: 1.0", "max_grad_norm: 2.0"))
    with pytest.raises(ValueError, match=r"text-seed0.*config.yaml: a default has changed"):
        run_study.main(argv)
    (config / "config.yaml").write_text(before)
    shutil.rmtree(graph)
    (config / "run" / "last").rename(tmp_path / "last")
    run_study.main([*argv, "--plan"])  # a checkpoint that is gone says nothing against its answers
    shutil.copytree(tmp_path / "last", config / "run" / "last")
    other = next(output.glob("train/text-seed1*")) / "run" / "last"
    shutil.rmtree(other)
    shutil.copytree(tmp_path / "last", other)
    with pytest.raises(ValueError, match=r"answers/text-seed1.*: answers of another checkpoint"):
        run_study.main(argv)
    assert len(calls) == 11


def test_hits_of_several_files_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [[f"c{n // 2}", str(n), "1" if n % 2 else "5", "1" if n else ""] for n in range(8)]
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for path, head, place in ((first, "a/0", 2), (second, "b/0", 3)):
        rows = [["conversation", "turn", head], *([*line[:2], line[place]] for line in lines)]
        path.write_text("".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
    hits.main([str(first), str(second), "--than", "a", "--rows", "b"])
    found = capsys.readouterr().out.strip().split("\n")[-1].split("|")
    assert [found[i].split()[0] for i in (3, 4, 5, 6)] == ["1.000", "1.000", "7", f"{3 / 7:+.3f}"]
    assert hits.read_hits([str(first)])["a"]["0"]["c0", "0"] == "5"
    with pytest.raises(ValueError, match="'c' is not a row of"):
        hits.main([str(first), "--than", "a", "--rows", "c"])

    # another seed has to be of the same questions; a row of others is compared with nothing
    second.write_text("conversation,turn,a/1\nc9,0,1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"b.csv: a/1 has answered other questions \(1\) than a/0"):
        hits.read_hits([str(first), str(second)])
    second.write_text("conversation,turn,b/0\nc9,0,1\n", encoding="utf-8")
    capsys.readouterr()
    hits.main([str(first), str(second), "--than", "a", "--rows", "b"])
    found = capsys.readouterr().out.strip().split("\n")[-1].split("|")
    assert [cell.strip() for cell in found[5:10]] == [""] * 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: must be conversation,turn"),
        ("conversation,turn,a\n", "line 1"),
        ("conversation,turn,a/0\nc,0,2\n", "line 2: must be 3 fields"),
        ("conversation,turn,a/0\nc,0\n", "line 2"),
    ],
)
def test_what_are_no_hits_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "hits.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        hits.read_hits([str(path)])


def test_only_what_changes_a_result_makes_another_run(
    tiny_folder: str, small_data: Path, tmp_path: Path
) -> None:
    path = write_study(tmp_path / "s", tiny_folder, small_data)
    found = read_study(path)
    size = found.sizes["smoke"]

    def folders(more: tuple[str, ...] = (), study: Study = found, size: Size = size) -> list[str]:
        return [run.folder.name for run in runs_of(study, size, tmp_path / "out", more=more)]

    before = folders()
    assert len(set(before)) == len(before) == 11
    assert folders(("--training.save_every=7", "--data.num_workers=2")) == before
    for other in ("--training.learning_rate=0.5", "--data.draw_seed=7"):
        assert not set(folders((other,))) & set(before)
    for run in runs_of(found, size, tmp_path / "out"):
        text = json.dumps(run.identity, sort_keys=True, default=str)
        assert run.folder.name.endswith(hashlib.sha256(text.encode()).hexdigest()[:12])
    fewer = folders(size=Size(overrides=size.overrides, num_questions=3))
    assert [a == b for a, b in zip(before, fewer, strict=True)] == [
        run.kind == "train" for run in runs_of(found, size, tmp_path / "out")
    ]


def test_core_rows_come_first_seed_after_seed(
    tiny_folder: str, small_data: Path, tmp_path: Path
) -> None:
    found = read_study(write_study(tmp_path / "s", tiny_folder, small_data))
    runs = runs_of(found, found.sizes["smoke"], tmp_path / "out")
    answers = [(run.row.name, run.seed) for run in runs if run.kind == "answer"]
    core = [("text", 0), ("graph", 0), ("untrained", 0), ("text", 1), ("graph", 1)]
    assert answers == [*core, ("shuffled", 0)]
    one_seed = replace(found.sizes["smoke"], num_seeds=1)
    with_one = runs_of(found, one_seed, tmp_path / "out")
    answers = [(run.row.name, run.seed) for run in with_one if run.kind == "answer"]
    assert answers == [*core[:3], ("shuffled", 0)]
    with pytest.raises(ValueError, match="num_seeds: 0 given"):
        replace(one_seed, num_seeds=0)
    only = chosen_runs(runs, ["shuffled"], [])
    assert [(run.kind, run.row.name) for run in only] == [
        ("train", "graph"),
        ("answer", "shuffled"),
    ]
    with pytest.raises(ValueError, match="--seeds: row 'shuffled' runs with seed 0 alone"):
        chosen_runs(runs, ["text", "shuffled"], [1])


def test_a_failed_run_stops_only_what_needs_it(
    tiny_folder: str, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def call(command: list[str], log: Path, stop: object) -> int:
        seen.append(log.parent.name.split("-")[0])
        return 1

    monkeypatch.setattr(runs, "call", call)
    argv = [*argv_of(tmp_path, tiny_folder, small_data), "--seeds", "0"]
    with pytest.raises(ValueError, match=r"3 runs failed: train text, seed 0: see .*log.txt"):
        run_study.main(argv)
    assert seen == ["text", "graph", "untrained"]
    state = next((tmp_path / "out").glob(f"train/text-*/{STATE}"))
    assert json.loads(state.read_text())["failed"]


def test_runs_side_by_side_begin_once_what_they_need_is_done(
    tiny_folder: str, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, seen = Barrier(2, timeout=60), list[str]()

    def call(command: list[str], log: Path, stop: object) -> int:
        kind, name = log.parent.parent.name, log.parent.name.split("-")[0]
        if kind == "train":
            both.wait()  # two trainings at once, or an error
        seen.append(f"{kind} {name}")
        return 0

    monkeypatch.setattr(runs, "call", call)
    monkeypatch.setattr(run_study, "write_report", lambda *_, **__: None)  # there are no answers
    argv = argv_of(tmp_path, tiny_folder, small_data)
    argv += ["--seeds", "0", "--rows", "text", "graph", "--at_once"]
    with pytest.raises(ValueError, match="--at_once: 0 given, must be at least 1"):
        run_study.main([*argv, "0"])
    run_study.main([*argv, "2"])
    assert sorted(seen) == ["answers graph", "answers text", "train graph", "train text"]
    for name in ("text", "graph"):
        assert seen.index(f"train {name}") < seen.index(f"answers {name}")
    run_study.main([*argv, "2"])  # nothing is left
    assert len(seen) == 4


@pytest.mark.slow
def test_answers_begin_anew_in_batches_that_fit(
    tiny_folder: str, small_data: Path, tmp_path: Path
) -> None:
    found = read_study(write_study(tmp_path / "s", tiny_folder, small_data))
    size = found.sizes["smoke"]

    def command_line(batch_size: int) -> list[str]:
        more = [f"--training.eval_batch_size={batch_size}"]
        run = runs_of(found, size, tmp_path / "out", more)[1]
        run.folder.mkdir(parents=True, exist_ok=True)
        return runs.command_of(run, size)

    assert "--fresh" not in command_line(64)
    [folder] = (tmp_path / "out" / "answers").iterdir()
    (folder / "predictions.jsonl.run.json").write_text('{"batch_size": 64}')
    assert "--fresh" not in command_line(64)
    assert command_line(16)[-2:] == ["--batch_size=16", "--fresh"]


def test_a_breakdown_that_there_is_not_is_named(
    tiny_folder: str, small_data: Path, tmp_path: Path, calls: Calls
) -> None:
    with pytest.raises(ValueError, match=r"field by: 'sources', must be of source, held_by"):
        run_study.main(argv_of(tmp_path, tiny_folder, small_data, by=["sources"]))
    assert calls == []


def test_a_stopped_run_is_gone_on_with(
    tiny_folder: str, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter([0, EXIT_GO_ON, 0])
    seen: Calls = []

    def call(command: list[str], log: Path, stop: object) -> int:
        seen.append(command)
        return next(codes)

    monkeypatch.setattr(runs, "call", call)
    monkeypatch.setattr(run_study, "write_report", lambda *_, **__: None)  # there are no answers
    argv = [*argv_of(tmp_path, tiny_folder, small_data), "--seeds", "0", "--rows", "text"]
    with pytest.raises(SystemExit) as stopped:
        run_study.main(argv)
    assert stopped.value.code == EXIT_GO_ON
    run_study.main(argv)
    assert len(seen) == 3
    assert seen[1] == seen[2]


@pytest.mark.parametrize(
    "other",
    [
        {"overrides": {"model.evidence": "text", "training.loop": "trl"}},
        {"trainer": "gretriever"},
    ],
)
def test_what_cannot_be_cut_waits_for_time_enough(
    tiny_folder: str, small_data: Path, tmp_path: Path, calls: Calls, other: dict[str, Any]
) -> None:
    row = {"name": "trl", "label": "TRL", **other}
    sizes = {"smoke": {"train_minutes": 60, "overrides": {"training.max_steps": 2}}}
    changes = {"rows": [row], "sizes": sizes, "baselines": [], "claims": []}
    argv = argv_of(tmp_path, tiny_folder, small_data, **changes)
    with pytest.raises(ValueError, match="train trl, seed 0: needs --max_minutes 60 or more"):
        run_study.main([*argv, "--max_minutes", "59"])
    with pytest.raises(SystemExit):
        run_study.main([*argv, "--max_minutes", "60"])  # some of it has passed
    assert calls == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--size", "huge"], "--size: 'huge' given"),
        (["--rows", "txt"], "--rows: 'txt' given"),
        (["--seeds", "9"], "--seeds: 9 given"),
        (["--evidence.topk=3"], "row text: unknown option --evidence.topk; did you mean"),
        (["--data", "nowhere"], r"train.jsonl: make train nowhere"),
        (["--training.seed=5"], "--training.seed: the study sets it"),
        (["--data.train", "other.jsonl"], "--data.train: the study sets it"),
    ],
)
def test_mistakes_are_named_before_anything_runs(
    tiny_folder: str,
    small_data: Path,
    tmp_path: Path,
    calls: Calls,
    changes: list[str],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        run_study.main([*argv_of(tmp_path, tiny_folder, small_data), *changes])
    assert calls == []


@pytest.mark.slow
def test_as_a_user_runs_it(tiny_folder: str, small_data: Path, tmp_path: Path) -> None:
    argv = argv_of(tmp_path, tiny_folder, small_data)
    command("-m", "turngraph", "study", *argv, "--rows", "text", "--seeds", "0")
    assert "| text | 1 |" in (tmp_path / "out" / "study.md").read_text()


@pytest.mark.slow
def test_gretriever_has_a_row_and_its_answers_go_on_where_they_were_stopped(
    tiny_folder: str, small_data: Path, tmp_path: Path, calls: Calls
) -> None:
    row = {"name": "peer", "label": "PyG", "trainer": "gretriever", "core": True}
    changes = {"rows": [row], "baselines": [], "claims": []}
    output = tmp_path / "out"
    run_study.main([*argv_of(tmp_path, tiny_folder, small_data, **changes), "--seeds", "0"])
    assert "| PyG | 1 |" in (output / "study.md").read_text()
    [trained] = output.glob("train/*/run")
    log = (trained / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == [1, 2]
    weights = load_file(trained / "last" / gretriever.WEIGHTS)
    assert any("lora_B" in name and weight.any() for name, weight in weights.items())

    [predictions] = output.glob("answers/*/predictions.jsonl")
    first = predictions.read_text().splitlines()
    assert len(first) == 6
    journal = "".join(f"[{number}, {line}]\n" for number, line in enumerate(first[:4]))
    unfinished(predictions).write_text(journal + "[4, " + first[4][:10])  # killed within a line
    argv = calls[1][calls[1].index("-m") + 2 :]
    gretriever.main(argv)

    def answers(lines: list[str]) -> list[tuple[str, str]]:
        return [(record["question"], record["answer"]) for record in map(json.loads, lines)]

    assert answers(predictions.read_text().splitlines()) == answers(first)
    with pytest.raises(ValueError, match=r"begun with batch_size \d, now 3 given"):
        gretriever.main([*argv, "--batch_size=3"])


def convmix_files(folder: Path) -> dict[str, Path]:
    """Downloaded files as they are: questions, and the passages that a tool retrieved for each."""
    files = {}
    for part, numbers in (("train", range(4)), ("test", (4, 5))):
        conversations, evidence = [], {}
        for number in numbers:
            made = tiny_conversation(number)
            asked = []
            for turn in made.turns:
                id_ = f"{number}-{turn.id}"
                answers = [{"id": a.id, "label": a.label} for a in turn.answers]
                asked.append(
                    {"question_id": id_, "turn": int(turn.id), "question": turn.question,
                     "answers": answers, "answer_src": turn.source}
                )  # fmt: skip
                evidence[id_] = [
                    {"evidence_text": passage.text,
                     "source": "info" if passage.source == "infobox" else passage.source,
                     "wikidata_entities": [
                         {"id": e.id, "label": e.label} for e in passage.entities
                     ],
                     "disambiguations": [[e.label, e.id] for e in passage.entities]}
                    for passage in made.evidence
                ]  # fmt: skip
            conversations.append({"conv_id": number, "domain": "tiny", "questions": asked})
        for name, value in (("questions", conversations), ("evidence", evidence)):
            files[f"{part}_{name}"] = folder / f"{part}_{name}.json"
            files[f"{part}_{name}"].write_text(json.dumps(value))
    return files


def run_convmix(files: dict[str, Path], tmp_path: Path, *rows: str) -> str:
    """The page that the study makes of downloaded files, on a random tiny Mistral."""
    base, tokenizer = tmp_path / "mistral", tiny_tokenizer()
    tiny_base("mistral", vocabulary=len(tokenizer)).save_pretrained(base)
    tokenizer.save_pretrained(base)
    for part in ("train", "test"):
        given = [f"--{name}={files[f'{part}_{name}']}" for name in ("questions", "evidence")]
        convmix.main([*given, "--output", str(tmp_path / "data" / f"{part}.jsonl")])
    argv = ["--config", "convmix", "--data", str(tmp_path / "data")]
    argv += ["--output", str(tmp_path / "out"), "--size", "smoke"]
    argv += ["--model.base_model", str(base), "--model.dtype", "float32"]
    argv += ["--evidence.memory", "none", "--model.lora.r", "4", "--training.max_steps", "2"]
    run_study.main([*argv, "--rows", *rows])
    return (tmp_path / "out" / "study.md").read_text()


@pytest.mark.slow
def test_convmix_from_files_to_the_table(tmp_path: Path, calls: Calls) -> None:
    page = run_convmix(convmix_files(tmp_path), tmp_path, "text", "graph", "cut_entity_edges")
    for label in ("text", "graph", "entity edges cut"):
        assert f"| {label} | 1 |" in page
    assert "6 questions of `test.jsonl`" in page
    trained = [command for command in calls if "turngraph.train" in command]
    assert len(trained) == 2  # without memory the graph rows are one


@pytest.mark.slow
def test_convmix_with_its_real_questions_and_passages(
    convmix_folder: Path, tmp_path: Path, calls: Calls
) -> None:
    conversations = json.loads((convmix_folder / "convmix_dev.json").read_text(encoding="utf-8"))
    passages = json.loads((convmix_folder / "convinse_evidence_sample.json").read_text("utf-8"))
    files = {}
    for part, of_part in (("train", conversations[:4]), ("test", conversations[4:7])):
        asked = [question for one in of_part for question in one["questions"]]
        found = {q["question_id"]: passages[i : i + 20] for i, q in enumerate(asked)}
        for name, value in (("questions", of_part), ("evidence", found)):
            files[f"{part}_{name}"] = tmp_path / f"{part}_{name}.json"
            files[f"{part}_{name}"].write_text(json.dumps(value))
    page = run_convmix(files, tmp_path, "graph")
    assert "| graph | 1 |" in page
    assert "12 questions of `test.jsonl`" in page

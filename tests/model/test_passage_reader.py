"""Node features by the frozen LM's first layers: beside the LM itself, kept, trained on."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from turngraph import infer, train
from turngraph.configs.schema import Config, DataConfig, ScorerConfig
from turngraph.data.batches.collate import candidate_entities, collate
from turngraph.inference.answer_batches import answer_together, check_lengths
from turngraph.model.base_model import decoder_layers
from turngraph.model.passage_reader import TOKENS_AT_ONCE, PassageReader
from turngraph.tests.nodes import examples, reloaded, scored
from turngraph.tests.runs import losses, options
from turngraph.tests.tiny import (
    ARCHITECTURES,
    stir,
    tiny_base,
    tiny_builder,
    tiny_model,
)
from turngraph.training.optimizer import make_optimizer

SCORER = ScorerConfig(layer=1, num_layers=2, width=16, heads=2, dropout=0.0)
SETTINGS = {"answers": "nodes", "lora": None, "scorer": SCORER}


@pytest.fixture(params=["one by one", "together"])
def _reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads the examples of a batch one by one, as on a CPU, then together, as on a GPU."""
    monkeypatch.setattr(PassageReader, "on_gpu", request.param == "together")


def segments(seed: int = 0, *sizes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, 480, (size,), generator=generator) for size in sizes]


def read(reader: PassageReader, parts: list[Tensor], questions: list[int]) -> list[Tensor]:
    sizes = torch.tensor([len(part) for part in parts])
    states: Tensor = reader(torch.cat(parts), sizes, torch.tensor(questions))
    return list(states.split(sizes.tolist()))


def by_the_lm(architecture: str, layer: int, ids: Tensor) -> Tensor:
    """The output of a decoder layer of the whole LM that reads one row."""
    base, kept = tiny_base(architecture), []
    decoder_layers(base)[layer - 1].register_forward_hook(lambda *a: kept.append(a[2]))
    with torch.no_grad():
        base(input_ids=ids[None])
    return (kept[0][0] if isinstance(kept[0], tuple) else kept[0])[0]


@pytest.mark.usefixtures("_reads")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("layer", [1, 2])
def test_states_are_those_of_the_lm_that_reads_question_and_passage(
    architecture: str, layer: int
) -> None:
    parts = segments(0, 7, 30, 1, 5, 12, 4)  # two examples: three passages, then one
    found = read(PassageReader(tiny_base(architecture), layer), parts, [3, 5])
    for passages, question in (([0, 1, 2], 3), ([4], 5)):
        asked = by_the_lm(architecture, layer, parts[question])
        assert torch.allclose(found[question], asked, atol=1e-5)
        for index in passages:
            whole = by_the_lm(architecture, layer, torch.cat([parts[question], parts[index]]))
            assert torch.allclose(found[index], whole[len(parts[question]) :], atol=1e-5)


@pytest.mark.usefixtures("_reads")
def test_the_first_token_of_the_lm_stands_before_the_question() -> None:
    base = tiny_base()
    base.config.bos_token_id = 3
    parts = segments(1, 6, 4)
    found = read(PassageReader(base, 2), parts, [1])
    whole = by_the_lm("llama", 2, torch.cat([torch.tensor([3]), parts[1], parts[0]]))
    assert torch.allclose(torch.cat([found[1], found[0]]), whole[1:], atol=1e-5)


@pytest.mark.usefixtures("_reads")
def test_many_passages_are_read_in_several_passes_and_empty_ones_not_at_all() -> None:
    sizes = [300, 0, 290, 400, 310, 20]
    assert sum(sizes) > TOKENS_AT_ONCE
    parts = segments(2, *sizes, 5)
    reader = PassageReader(tiny_base(), 1)
    found = read(reader, parts, [6])
    for part, states in zip(parts[:6], found, strict=False):
        [alone, _] = read(reader, [part, parts[6]], [1])
        assert torch.allclose(states, alone, atol=1e-5)
    [without, _] = read(reader, [parts[5], parts[1]], [1])  # the question is empty
    assert torch.allclose(without, by_the_lm("llama", 1, parts[5]), atol=1e-5)
    assert [len(states) for states in read(reader, [parts[6]], [0])] == [5]


def test_layers_above_are_released_and_nothing_is_trained() -> None:
    reader = PassageReader(tiny_base(), 1).train()
    assert len(decoder_layers(reader.body)) == 1  # type: ignore[arg-type]  # a torch module
    assert not any(parameter.requires_grad for parameter in reader.parameters())
    assert reader.training
    assert not any(module.training for module in reader.body.modules())


def test_layers_leave_memory_with_their_reader() -> None:
    gc.disable()  # as between two of its rare searches for cycles
    try:
        reader = PassageReader(tiny_base(), 1)
        read(reader, segments(0, 4, 3), [1])
        layers = weakref.ref(reader.body)
        del reader
        assert layers() is None
    finally:
        gc.enable()


def test_too_many_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"model.scorer.layer: 3 given, the LM has 2 layers"):
        PassageReader(tiny_base(), 3)


def test_a_passage_that_is_too_long_is_named_with_its_question() -> None:
    model, batch = stir(tiny_model(**SETTINGS)), examples(3)
    assert model.scorer is not None
    assert model.scorer.reader is not None
    rows = []
    for example in batch:
        assert example.graph.mentions is not None
        *passages, question = example.graph.mentions.sizes.tolist()
        rows.append(max(passages) + question)
    limit = model.scorer.reader.max_tokens = max(rows) - 1
    wanted = rf"conversation c0, turn .: a passage and its question of {max(rows)} tokens, the"
    with pytest.raises(ValueError, match=wanted):
        check_lengths(model, batch, None)
    with pytest.raises(ValueError, match=rf"model has {limit} positions: train with [^,]*$"):
        answer_together(model, tiny_builder().prompt, batch)
    model.scorer.reader.max_tokens = max(rows)
    assert len(answer_together(model, tiny_builder().prompt, batch)) == 3


def test_states_that_a_folder_keeps_are_not_computed_again(tmp_path: Path) -> None:
    parts = segments(3, 9, 4, 3)
    reader = PassageReader(tiny_base(), 2)
    fresh = read(reader, parts, [2])
    reader.folder = tmp_path / "states"
    first = read(reader, parts, [2])
    [file] = reader.folder.iterdir()
    reader.body.forward = None  # type: ignore[assignment]  # not to be called
    again = read(reader, parts, [2])
    for one, other, third in zip(fresh, first, again, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, third)
    file.write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"training.state_folder: .*\.safetensors: "):
        read(reader, parts, [2])


def test_states_are_kept_only_where_some_are_read() -> None:
    static = tiny_model(**SETTINGS | {"scorer": replace(SCORER, layer=0)})
    for model in (tiny_model(), static):
        model.keep_states(None)
        with pytest.raises(ValueError, match=r"training.state_folder: 'f' given, must be null"):
            model.keep_states("f")


def test_other_segments_have_states_of_their_own(tmp_path: Path) -> None:
    reader = PassageReader(tiny_base(), 1)
    reader.folder = tmp_path
    ids = torch.cat(segments(4, 8, 4))
    for sizes in ([8, 4], [4, 8], [2, 6, 4]):
        read(reader, list(ids.split(sizes)), [len(sizes) - 1])
    assert len(list(tmp_path.iterdir())) == 3


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    reader = PassageReader(tiny_base(), 1)
    reader.folder = tmp_path / "file" / "states"
    with pytest.raises(ValueError, match=r"training.state_folder: .*file/states/"):
        read(reader, segments(5, 3, 3), [1])


@pytest.mark.usefixtures("_reads")
def test_a_batch_scores_as_its_examples_do_one_by_one() -> None:
    model, batch = stir(tiny_model(**SETTINGS)), examples(6)
    for example, logprobs in zip(batch, scored(model, batch), strict=True):
        assert logprobs == pytest.approx(scored(model, [example])[0], abs=1e-5)
    static = stir(tiny_model(**SETTINGS | {"scorer": replace(SCORER, layer=0)}))
    assert scored(static, batch[:1])[0] != pytest.approx(scored(model, batch[:1])[0], abs=1e-3)


def test_it_learns_and_answers_with_entities(tmp_path: Path) -> None:
    model, batch = tiny_model(**SETTINGS), examples(9)
    model.keep_states(str(tmp_path))
    settings = Config(DataConfig(train="x")).training
    optimizer = make_optimizer(model, replace(settings, encoder_learning_rate=0.01))
    tensors = collate(batch, "right", with_target=True)
    for _ in range(60):
        loss = model(tensors).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    [folder] = tmp_path.iterdir()
    assert folder.name == f"{model.base_fingerprint[:12]}_none_float32_1"
    assert len(list(folder.iterdir())) == len(batch)
    records = answer_together(model, tiny_builder().prompt, batch, batch_size=4)
    for example, record in zip(batch, records, strict=True):
        assert record["hit_at_1"]
        assert record["answer"] in {entity.label for entity in candidate_entities(example)}


def test_a_checkpoint_holds_no_weights_of_the_lm_and_gives_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = stir(tiny_model(**SETTINGS))
    assert model.scorer is not None
    assert not any(name.startswith("reader") for name in model.scorer.saved_state())
    again = reloaded(model, tmp_path / "c", monkeypatch)
    assert scored(again, examples(3)) == scored(model, examples(3))


@pytest.mark.usefixtures("fresh_accelerator")
def test_one_command_trains_it_and_kept_states_change_nothing(
    tiny_folder: str, tiny_data: Path, tmp_path: Path
) -> None:
    settings = {
        "evidence.question_nodes": "query",
        "model.answers": "nodes",
        "model.lora": "null",
        "model.scorer.layer": 2,
        "training.encoder_learning_rate": 0.01,
        "training.num_epochs": 2,
        "training.max_steps": "null",
    }
    found = []
    for name, folder in (("a", "null"), ("b", tmp_path / "states"), ("c", tmp_path / "states")):
        options_ = options(tiny_folder, tiny_data, tmp_path / name, **settings)
        options_ = [o for o in options_ if "lora.r" not in o]
        train.main([*options_, f"--training.state_folder={folder}"])
        found.append(losses(tmp_path / name))
    assert found[0] == found[1] == found[2]
    assert found[0][-1] < found[0][0]
    [states] = (tmp_path / "states").iterdir()
    assert len(list(states.iterdir())) == 3 * 6  # the questions of train and tune
    asked = ["--checkpoint", tmp_path / "b" / "last", "--input", tiny_data / "tune.jsonl"]
    infer.main(["answer", *map(str, [*asked, "--output", tmp_path / "answers.jsonl"])])
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 6

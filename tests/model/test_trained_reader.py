"""LoRA in the layers that a scorer reads: gradients as in the whole LM, saved, trained, resumed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from turngraph import infer, train
from turngraph.configs.schema import Config, DataConfig, LoraConfig, ScorerConfig
from turngraph.data.batches.collate import collate
from turngraph.inference.answer_batches import answer_together
from turngraph.model.base_model import LORA, add_lora, decoder_layers
from turngraph.model.passage_reader import PassageReader
from turngraph.tests.nodes import examples, reloaded, scored
from turngraph.tests.runs import losses, options
from turngraph.tests.tiny import ARCHITECTURES, stir, tiny_base, tiny_builder, tiny_model
from turngraph.training.optimizer import make_optimizer

SCORER = ScorerConfig(layer=2, num_layers=2, width=16, heads=2, dropout=0.0)
SETTINGS: dict[str, Any] = {"answers": "nodes", "scorer": SCORER}


def with_lora(architecture: str) -> Any:
    """A tiny LM with LoRA of random weights, the same at each call."""
    base = tiny_base(architecture).requires_grad_(False)
    targets = (ARCHITECTURES[architecture][1],)
    add_lora(base, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=targets))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in base.named_parameters():
            if LORA in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return base.eval()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("lm_has_lora", [False, True])
def test_an_lm_in_memory_lends_its_weights_and_each_keeps_its_lora(
    architecture: str, lm_has_lora: bool
) -> None:
    lm = tiny_base(architecture)
    if lm_has_lora:  # zero at first
        targets = (ARCHITECTURES[architecture][1],)
        lora = LoraConfig(r=2, lora_alpha=8, lora_dropout=0.0, target_modules=targets)
        lm = cast(PreTrainedModel, add_lora(lm, lora))
    reader = PassageReader(with_lora(architecture), 1).eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 480, (12,), generator=generator)
    asked = ids, torch.tensor([8, 4]), torch.tensor([1])
    before = reader(*asked)
    reader.share_weights(lm)
    assert torch.equal(reader(*asked), before)
    theirs = {p.data_ptr() for p in lm.parameters()}
    own = {n: p.data_ptr() for n, p in reader.body.named_parameters()}
    assert all((pointer in theirs) == (LORA not in name) for name, pointer in own.items())


def gradients(base: Any) -> dict[str, Tensor]:
    return {n: p.grad for n, p in base.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_are_those_of_the_lm_that_reads_question_and_passage(architecture: str) -> None:
    generator = torch.Generator().manual_seed(0)
    passages = [torch.randint(2, 480, (size,), generator=generator) for size in (7, 30, 1)]
    question = torch.randint(2, 480, (5,), generator=generator)
    weights = torch.randn(30, 32, generator=generator)

    whole, kept = with_lora(architecture), []
    decoder_layers(whole)[1].register_forward_hook(lambda *a: kept.append(a[2]))
    total = torch.zeros(())
    for passage in passages:
        whole(input_ids=torch.cat([question, passage])[None])
        [output] = kept
        kept.clear()
        states = (output[0] if isinstance(output, tuple) else output)[0, len(question) :]
        total = total + (states * weights[: len(passage)]).sum()
    total.backward()

    base = with_lora(architecture)
    reader = PassageReader(base, 2).eval()
    assert reader.is_trained
    sizes = torch.tensor([7, 30, 1, 5])
    read = reader(torch.cat([*passages, question]), sizes, torch.tensor([3]))
    parts = read.split(sizes.tolist())[:3]
    sum((part * weights[: len(part)]).sum() for part in parts).backward()

    expected, found = gradients(whole), gradients(base)
    assert set(found) == set(expected)
    assert all(LORA in name for name in found)
    for name, gradient in expected.items():
        assert gradient.abs().max() > 0, name
        assert torch.allclose(found[name], gradient, atol=1e-4, rtol=1e-3), name


def test_neither_recomputed_activations_nor_batches_change_a_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors, found = collate(examples(3), "right", with_target=True), []
    for together, recomputes in product((False, True), (False, True)):
        monkeypatch.setattr(PassageReader, "on_gpu", together)
        model = stir(tiny_model(**SETTINGS, gradient_checkpointing=recomputes)).train()
        assert model.scorer is not None
        assert model.scorer.reader is not None
        passes: list[int] = []
        count = model.scorer.reader.body.register_forward_pre_hook(lambda *_, p=passes: p.append(1))
        model(tensors).total.backward()
        count.remove()
        found.append((len(passes), [p.grad for p in model.parameters() if p.requires_grad]))
    (once, expected), (again, _), (together_once, _), (together_again, _) = found
    assert once < again <= 2 * once
    assert together_once == 1  # of whole rows
    assert together_once < together_again
    for _, gradients_ in found[1:]:
        for one, other in zip(expected, gradients_, strict=True):
            assert one is not None
            assert other is not None
            assert torch.allclose(one, other, atol=1e-5, rtol=1e-4)


def test_until_it_is_trained_it_scores_like_frozen_layers() -> None:
    batch = examples(3)
    frozen, trained = tiny_model(**SETTINGS, lora=None), tiny_model(**SETTINGS)
    assert frozen.scorer is not None
    assert trained.scorer is not None
    trained.scorer.load_state_dict(frozen.scorer.state_dict(), strict=False)
    for one, other in zip(scored(frozen, batch), scored(trained, batch), strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    loss = trained.train()(collate(batch, "right", with_target=True)).total
    loss.backward()
    groups = trained.parameter_groups()
    assert set(groups) == {"lora", "encoder"}
    assert sum(len(group) for group in groups.values()) == len(
        list(trained.scorer.parameters())
    ) - sum(not p.requires_grad for p in trained.scorer.parameters())
    # the second matrix is zero at first, so that the first one has no gradient yet
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in groups["lora"])


def test_it_learns_and_answers_with_entities() -> None:
    model, batch = tiny_model(**SETTINGS), examples(9)
    settings = Config(DataConfig(train="x")).training
    optimizer = make_optimizer(
        model, replace(settings, learning_rate=0.01, encoder_learning_rate=0.01)
    )
    tensors = collate(batch, "right", with_target=True)
    before = [p.detach().clone() for p in model.parameter_groups()["lora"]]
    for _ in range(60):
        loss = model.train()(tensors).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = model.parameter_groups()["lora"]
    assert not any(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    records = answer_together(model.eval(), tiny_builder().prompt, batch, batch_size=4)
    assert all(record["hit_at_1"] for record in records)


def test_a_checkpoint_holds_its_lora_and_gives_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = stir(tiny_model(**SETTINGS))
    assert model.scorer is not None
    saved = [name for name in model.scorer.saved_state() if name.startswith("reader.")]
    assert saved
    assert all(LORA in name for name in saved)
    again = reloaded(model, tmp_path / "c", monkeypatch)
    assert scored(again, examples(3)) == scored(model, examples(3))


def test_states_of_layers_that_are_trained_are_not_kept() -> None:
    with pytest.raises(ValueError, match=r"training.state_folder: 'f' given, must be null"):
        tiny_model(**SETTINGS).keep_states("f")


def test_in_bfloat16_its_states_are_close_to_those_in_float32() -> None:
    batch = examples(3)
    exact = stir(tiny_model(**SETTINGS))
    low = stir(tiny_model(**SETTINGS, dtype="bfloat16"))
    assert low.scorer is not None
    assert low.scorer.reader is not None
    for name, parameter in low.scorer.reader.named_parameters():
        if LORA not in name:
            parameter.data = parameter.data.bfloat16()
    for one, other in zip(scored(exact, batch), scored(low, batch), strict=True):
        assert one == pytest.approx(other, abs=0.5)
    low.train()(collate(batch, "right", with_target=True)).total.backward()
    assert all(p.grad is not None for p in low.parameter_groups()["lora"])


@pytest.mark.usefixtures("fresh_accelerator")
def test_one_command_trains_it_and_goes_on_from_its_checkpoint(
    tiny_folder: str, tiny_data: Path, tmp_path: Path
) -> None:
    settings = {
        "evidence.question_nodes": "query",
        "model.answers": "nodes",
        "model.scorer.layer": 2,
        "training.encoder_learning_rate": 0.01,
        "training.num_epochs": 4,
        "training.max_steps": "null",
    }
    train.main(options(tiny_folder, tiny_data, tmp_path / "whole", **settings))
    whole = losses(tmp_path / "whole")
    assert sum(whole[-4:]) < sum(whole[:4])
    parted = options(tiny_folder, tiny_data, tmp_path / "parted", **settings)
    with pytest.raises(SystemExit):
        train.main([*parted, "--training.max_minutes=0.0001"])
    assert len(losses(tmp_path / "parted")) < len(whole)
    train.main(parted)
    assert losses(tmp_path / "parted") == pytest.approx(whole, rel=1e-5)
    asked = ["--checkpoint", tmp_path / "parted" / "last", "--input", tiny_data / "tune.jsonl"]
    infer.main(["answer", *map(str, [*asked, "--output", tmp_path / "answers.jsonl"])])
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 6

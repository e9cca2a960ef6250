"""Models are loaded by several threads, as a server's LM and its sentence encoder are."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from turngraph.model.base_model import empty_base_model, load_base_model


@pytest.mark.parametrize("load", [empty_base_model, load_base_model])
def test_threads_that_load_models_leave_the_default_type_as_it_was(
    load: Any, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers sets the default type of all threads meanwhile.

    The second thread waits inside until the first has left, and would then put back the type that
    it found; with the lock it is not inside yet.
    """
    entered, left, make = [0], threading.Event(), LlamaForCausalLM.__init__

    def wait_for_the_first(*arguments: Any, **options: Any) -> None:
        entered[0] += 1
        if entered[0] == 1:
            time.sleep(0.2)  # the second comes in meanwhile
        else:
            left.wait()
        make(*arguments, **options)

    def one(_: int) -> torch.dtype:
        model = load(tiny_folder, "bfloat16", trusted=())
        left.set()
        return next(model.parameters()).dtype

    monkeypatch.setattr(LlamaForCausalLM, "__init__", wait_for_the_first)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert set(pool.map(one, range(2))) == {torch.bfloat16}
        assert torch.get_default_dtype() == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)

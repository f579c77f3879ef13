"""Keras 3 on PyTorch, imitated: an optimizer that is none of torch.optim, and callbacks in a pool of threads."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from traced import saved

pytest.importorskip("torch")

FILES = {
    "callbacks/callback_list.py": """
        from concurrent.futures import ThreadPoolExecutor
        import numpy

        class CallbackList:
            def __init__(self):
                self._executor, self._futures = ThreadPoolExecutor(), []
            def _async_dispatch(self, fn, *args):
                self._futures.append(self._executor.submit(fn, *args))
            def on_train_batch_end(self, loss):
                self._async_dispatch(lambda: numpy.array(loss.detach().cpu()))
                for each in self._futures:
                    each.result()
    """,
    "optimizers/base_optimizer.py": """
        import torch

        class Variable:
            def __init__(self, value):
                self.value = value

        class BaseOptimizer:
            def __init__(self):
                self._trainable_variables, self.variables = [], []
            def apply(self, grads, trainable_variables=None):
                if not self.variables:
                    self._trainable_variables = list(trainable_variables)
                    self.variables = [Variable(torch.zeros_like(each.value)) for each in trainable_variables]
                with torch.no_grad():
                    for state, grad, weight in zip(self.variables, grads, self._trainable_variables):
                        state.value.mul_(0.9).add_(grad)
                        weight.value.sub_(state.value * 0.1)

        class SGD(BaseOptimizer):
            pass
    """,
    "backend/torch/trainer.py": """
        import torch
        from keras.src.callbacks.callback_list import CallbackList
        from keras.src.optimizers.base_optimizer import SGD, Variable

        class TorchTrainer:
            def fit(self, x, y):
                self.optimizer, callbacks = SGD(), CallbackList()
                for at in range(0, len(x), 16):
                    callbacks.on_train_batch_end(self.train_step((x[at:at + 16].cuda(), y[at:at + 16].cuda())))
            def train_step(self, data):
                x, y = data
                loss = torch.nn.functional.cross_entropy(self(x), y)
                self.zero_grad()
                loss.backward()
                weights = [Variable(each) for each in self.parameters()]
                self.optimizer.apply([each.value.grad for each in weights], weights)
                return loss
    """,
}
SCRIPT = """
    import os
    os.environ["KERAS_BACKEND"] = "torch"
    import torch
    from keras.src.backend.torch.trainer import TorchTrainer

    class Model(torch.nn.Module, TorchTrainer):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(512, 1024)
        def __call__(self, x):
            return self.net(x)

    Model().cuda().fit(torch.rand(160, 512), torch.zeros(160).long())
"""


def test_keras_on_pytorch_is_traced_with_its_own_optimizer_and_its_threads(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / "keras" / "src" / name
        path.parent.mkdir(parents=True)
        path.write_text(textwrap.dedent(text))
        for folder in path.parents[: len(path.relative_to(tmp_path).parents) - 1]:
            (folder / "__init__.py").touch()
    done, found = saved(tmp_path, SCRIPT)
    (profile,) = found.profiles
    weights = 4 * 1025 * 512 - 4 * 512 + 4 * 1024
    assert found.model == "Model" and found.batch_size == 16
    assert profile.optimizer == "sgd"
    assert weights <= profile.optimizer_bytes <= 1.05 * weights, "the state of its own optimizer"
    assert not json.loads(done.stdout).get("warnings")

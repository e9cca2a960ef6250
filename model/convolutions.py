"""Makes the encoder's graph convolutions: our GATv2, or a class of PyTorch Geometric by name.

Shapes: N nodes, E edges, D LM width.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from turngraph.configs.schema import EncoderConfig
from turngraph.configs.user_error import UserError
from turngraph.configs.words import similar
from turngraph.model.gatv2 import GATv2Layer


def make_convolution(width: int, config: EncoderConfig) -> nn.Module:
    """Make one layer of the encoder, from node states [N, D] to node states [N, D].

    Args:
        width: D.
        config: ``conv``, heads, dropout.

    Raises:
        UserError: PyTorch Geometric has no such convolution, or it needs other arguments.
    """
    if config.conv == "gatv2":
        return GATv2Layer(
            width,
            width,
            config.heads,
            concat=False,
            dropout=config.dropout,
            loop_free=True,
        )
    return PygConvolution(width, config)


class PygConvolution(nn.Module):
    """A convolution of ``torch_geometric.nn`` as a layer of the encoder.

    If it has heads, they have the LM's width and are averaged. ``GINConv`` gets a perceptron of two
    layers.

    Args:
        width: D.
        config: ``conv``, heads, dropout.

    Raises:
        UserError: there is no such convolution, or it needs other arguments.
    """

    def __init__(self, width: int, config: EncoderConfig) -> None:
        super().__init__()
        name = config.conv
        class_ = _class_of(name)
        taken = inspect.signature(class_.__init__).parameters
        arguments: dict[str, Any] = {"in_channels": width, "out_channels": width}
        arguments |= {"heads": config.heads, "concat": False, "dropout": config.dropout}
        if name == "GINConv":
            linear = nn.Linear(width, width), nn.Linear(width, width)
            arguments["nn"] = nn.Sequential(linear[0], nn.ELU(), linear[1])
        settings = {key: value for key, value in arguments.items() if key in taken}
        required = {
            key
            for key, parameter in taken.items()
            if parameter.default is inspect.Parameter.empty
            and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        }
        if missing := sorted(required - settings.keys() - {"self"}):
            raise UserError(
                f"config field model.encoder.conv: {name!r} given, which needs "
                f"{', '.join(missing)} in addition to channels, heads and dropout"
            )
        self.conv = class_(**settings)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Compute new node states.

        Args:
            x: node states, [N, D].
            edge_index: source row and target row, [2, E].

        Returns:
            [N, D].
        """
        states: Tensor = self.conv(x, edge_index)
        return states


def _class_of(name: str) -> Any:
    """Return a convolution of PyTorch Geometric by its class name."""
    from torch_geometric import nn as pyg  # takes half a second, and gatv2 does not need it

    class_ = getattr(pyg, name, None)
    is_class = isinstance(class_, type) and issubclass(class_, pyg.MessagePassing)
    if is_class and class_ is not pyg.MessagePassing:
        return class_
    names = [n for n in dir(pyg) if n.endswith("Conv")]
    near = similar(name, ["gatv2", *names])
    hint = f"; did you mean {near}?" if near else ""
    raise UserError(
        f"config field model.encoder.conv: {name!r} given, must be gatv2 or a convolution of "
        f"torch_geometric.nn such as TransformerConv{hint}"
    )


def check_attention(layers: nn.ModuleList, needed_by: str) -> None:
    """Check that every layer returns its attention weights.

    Args:
        layers: layers of the encoder.
        needed_by: feature that needs the weights, for the message.

    Raises:
        UserError: a layer is a convolution of PyTorch Geometric.
    """
    for layer in layers:
        if not isinstance(layer, GATv2Layer):
            name = type(layer.conv).__name__ if isinstance(layer, PygConvolution) else type(layer)
            raise UserError(
                f"model.encoder.conv {name}: {needed_by} needs the attention weights of gatv2"
            )

"""A calibrated model leaves Python: `torch.export`, ONNX, TorchScript. The probabilities stay the same.

A calibrator is a formula with a few numbers, so it belongs into the deployed graph, behind the network: whoever runs the
file gets calibrated probabilities and can't forget a step. (The other way is the calibrator's JSON file, which any
language can apply: docs/posthoc.md.)
"""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from calgrad.checks import InputError


def to_exported(model: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """The model as a graph of PyTorch's own operations, for any number of rows: `torch.export.save` writes it.

    Args:
        model: takes one tensor with samples along its first dimension; a `CalibratedModel`, say.
        example: inputs of at least two rows.

    Example:
        >>> import torch, calgrad
        >>> from calgrad.integrations.deploy import to_exported
        >>> net, x = torch.nn.Linear(4, 3), torch.randn(500, 4)
        >>> labels = torch.multinomial((2 * net(x)).softmax(1), 1)[:, 0]
        >>> model = calgrad.CalibratedModel(net, calgrad.make_calibrator("temperature").fit(net(x), labels))
        >>> bool(torch.allclose(to_exported(model, x).module()(x[:7]), model(x[:7])))
        True
    """
    _check_example(example)
    with torch.no_grad():
        return torch.export.export(_for_use(model), (example,), dynamic_shapes=_any_rows())


def to_torchscript(model: nn.Module, example: Tensor) -> torch.jit.ScriptModule:
    """The model traced as TorchScript, where a C++ or mobile runtime still wants that; prefer `to_exported`.

    A trace follows one example: where the network branches on values or sizes, it keeps the branch the example took.
    What comes out is compared with the model on the example and on its first row.
    """
    _check_example(example)
    module = _for_use(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # the checks of shapes look at sizes, and may
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(module, (example,), check_trace=False)
        for rows in (example, example[:1]):
            if not torch.allclose(traced(rows), module(rows), atol=1e-6):
                raise InputError("the traced model answers differently: it branches on values; use to_exported")
    return traced


def to_onnx(model: nn.Module, path: str | PathLike[str], example: Tensor, *, output: str = "probs") -> None:
    """Write the model as ONNX, for any number of rows: input "input", one output.

    Needs `onnx` and `onnxscript`; the file runs in onnxruntime and wherever ONNX opset 18 does.

    Args:
        model: takes one tensor with samples along its first dimension.
        path: the file, "model.onnx"; weights above 2 GB would lie beside it.
        example: inputs of at least two rows.
        output: what to call the output.
    """
    _check_example(example)
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError("ONNX export needs two packages: pip install onnx onnxscript") from error
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        program = torch.onnx.export(
            _for_use(model),
            (example,),
            dynamo=True,
            verbose=False,
            input_names=["input"],
            output_names=[output],
            dynamic_shapes=_any_rows(),
            custom_translation_table={torch.ops.aten.searchsorted.Tensor: _searchsorted()},
        )
    assert program is not None
    program.save(str(path))


def _for_use(model: nn.Module) -> nn.Module:
    if model.training:
        raise InputError("the model is in training mode: call model.eval() before it is exported")
    return model


def _check_example(example: Tensor) -> None:
    if not isinstance(example, Tensor) or example.ndim < 1 or len(example) < 2:
        raise InputError(
            "`example` must be a tensor of at least two rows: with one, the exporter fixes the number at one"
        )


def _any_rows() -> Any:
    return ({0: torch.export.Dim("rows", min=2)},)


def _searchsorted() -> Any:
    """aten.searchsorted in ONNX, which lacks it: count the edges below each value. Tables of a calibrator are short."""
    from onnxscript import opset18

    op: Any = opset18

    def searchsorted(
        edges: Any,
        values: Any,
        out_int32: bool = False,
        right: bool = False,
        side: str | None = None,
        sorter: Any = None,
    ) -> Any:
        below = op.Less(op.Unsqueeze(edges, [1]), op.Unsqueeze(values, [2]))
        return op.ReduceSum(op.Cast(below, to=7), [2], keepdims=0)  # 7: int64

    return searchsorted

"""A model as an ONNX file: its formula as a graph, with the ids of its items, and of its users if it knows them.

    adopted   (n_users, n_items) float32: 0 where nothing is known, else 1 or a count; the graph normalises it itself
    rejected  (n_users, n_items) float32: 1 where a user rejected an item, for models that read it
    user      (n_users,) int64: numbers of known users, for models that have weights of users; if the model reads
              `adopted` too, the number after the last is for users that it has not met
    logits    (n_users, n_items) float32: higher is better; what a user has is not left out

The entry `milrec` of the file's metadata is JSON with the ids. onnx is imported nowhere else.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milrec.errors import SettingsError
from milrec.models.formula import Activation, Formula, MatrixProduct, Shift, Step
from milrec.storage import check_place, new_file
from milrec.training.artifact import Fitted

OPSET = 17  # read by onnxruntime 1.12 (2022) and newer
_IR = 8  # the format of the file that goes with it
_LARGEST = (1 << 31) - 1  # bytes: what protobuf can hold
_TINY = 1e-30  # a length to divide by where nothing was adopted
_FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


def write_onnx(fitted: Fitted, path: Path) -> None:
    """The file appears when it is whole; an older one is replaced."""
    check_place(path)
    if path.suffix != ".onnx":
        raise SettingsError(f"'{path}' does not end in .onnx")
    name, formula = fitted.settings.model.model, fitted.model.eval().formula()
    if formula is None:
        raise SettingsError(f"model '{name}' cannot be exported to ONNX; dae, cdae, vae, mf, wmf, ease and slim can")
    if formula.user_rows is not None and not fitted.train.has_users:
        raise SettingsError(f"model '{name}' needs its users, but it was saved without them")
    size = sum(value.numel() * 4 for value in formula.tensors())
    if size > _LARGEST:
        raise SettingsError(f"the weights take up {size / 2**30:.1f} GiB, and an ONNX file holds at most 2 GiB")
    with new_file(path) as draft:
        draft.write_bytes(_model(_onnx(), fitted, formula).SerializeToString(deterministic=True))


def _onnx() -> ModuleType:
    try:
        import onnx
    except ImportError:
        raise SettingsError("ONNX files need another package: pip install 'milrec[onnx]'") from None
    found: ModuleType = onnx
    return found


def _model(onnx: ModuleType, fitted: Fitted, formula: Formula) -> Any:
    graph = _Graph(onnx, fitted.train.n_items)
    graph.output(graph.steps(graph.entering(formula), formula.steps))
    made = onnx.helper.make_model(
        graph.made(),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=_IR,
        producer_name="milrec",
        producer_version=version("milrec"),
    )
    onnx.helper.set_model_props(made, {"milrec": json.dumps(_facts(fitted, formula), ensure_ascii=False)})
    onnx.checker.check_model(made)
    return made


def _facts(fitted: Fitted, formula: Formula) -> dict[str, Any]:
    """Which item a column of the logits is, and which user a number."""
    train, items = fitted.train, fitted.train.items
    facts: dict[str, Any] = {"model": fitted.settings.model.model, "items": items["id"].to_pylist()}
    if "title" in items.column_names:
        facts["titles"] = items["title"].to_pylist()
    if formula.user_rows is not None:  # with `adopted` as an input too, the number after the last is for new users
        facts["users"] = train.users["id"].to_pylist()
    return facts


class _Graph:
    """Nodes, one after another; each is called after what it makes."""

    def __init__(self, onnx: ModuleType, n_items: int) -> None:
        self.onnx, self.n_items = onnx, n_items
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: list[Any] = []

    def made(self) -> Any:
        return self.onnx.helper.make_graph(self.nodes, "milrec", self.inputs, self.outputs, self.constants)

    def entering(self, formula: Formula) -> str:
        """What enters the first step: a sum of what a user adopted and of who the user is."""
        parts = []
        if formula.item_weight is not None:
            self._input("adopted", self.onnx.TensorProto.FLOAT, ["n_users", self.n_items])
            read = self._read(formula)
            parts.append(self._node("MatMul", read, self._constant("item_weight", formula.item_weight)))
        if formula.rejected_weight is not None:
            self._input("rejected", self.onnx.TensorProto.FLOAT, ["n_users", self.n_items])
            read = self._of_length_1(self._ones("rejected"))
            parts.append(self._node("MatMul", read, self._constant("rejected_weight", formula.rejected_weight)))
        if formula.user_rows is not None:
            self._input("user", self.onnx.TensorProto.INT64, ["n_users"])
            rows = _with_nobody(formula.user_rows) if parts else formula.user_rows
            parts.append(self._node("Gather", self._constant("user_rows", rows), "user", axis=0))
        return parts[0] if len(parts) == 1 else self._node("Sum", *parts)

    def steps(self, value: str, steps: tuple[Step, ...]) -> str:
        for number, step in enumerate(steps, start=1):
            value = self._step(value, step, number)
        return value

    def output(self, value: str) -> None:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], ["logits"]))
        kind, shape = self.onnx.TensorProto.FLOAT, ["n_users", self.n_items]
        self.outputs.append(self.onnx.helper.make_tensor_value_info("logits", kind, shape))

    def _step(self, value: str, step: Step, number: int) -> str:
        if isinstance(step, MatrixProduct):
            return self._node("MatMul", value, self._constant(f"weight_{number}", step.weight))
        if isinstance(step, Shift):
            return self._node("Add", value, self._constant(f"bias_{number}", step.bias))
        assert isinstance(step, Activation)
        return value if step.name == "linear" else self._node(_FUNCTIONS[step.name], value)

    def _read(self, formula: Formula) -> str:
        """Adopted weights as the encoder reads them (`models.inputs.unit_rows`)."""
        if formula.weights == "binary":
            read = self._ones("adopted")
        elif formula.weights == "log":
            read = self._node("Log", self._node("Add", "adopted", self._constant("one", torch.ones(1))))
        else:
            read = "adopted"
        if formula.item_scale is not None:
            read = self._node("Mul", read, self._constant("item_scale", formula.item_scale))
        return self._of_length_1(read) if formula.unit_length else read

    def _ones(self, name: str) -> str:
        """1 where an input is above 0."""
        some = self._node("Greater", name, self._constant(f"no_{name}", torch.zeros(1)))
        return self._node("Cast", some, to=self.onnx.TensorProto.FLOAT)

    def _of_length_1(self, read: str) -> str:
        tiny = self._constant(f"tiny_{len(self.nodes)}", torch.full((1,), _TINY))
        length = self._node("ReduceL2", read, axes=[1], keepdims=1)
        return self._node("Div", read, self._node("Max", length, tiny))

    def _node(self, operation: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operation.lower()}_{len(self.nodes) + 1}"
        self.nodes.append(self.onnx.helper.make_node(operation, list(inputs), [name], **attributes))
        return name

    def _constant(self, name: str, value: Tensor) -> str:
        plain = np.ascontiguousarray(value.detach().cpu().numpy(), dtype=np.float32)
        self.constants.append(self.onnx.numpy_helper.from_array(plain, name))
        return name

    def _input(self, name: str, kind: int, shape: list[Any]) -> None:
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))


def _with_nobody(rows: Tensor) -> Tensor:
    """One more row, of zeros, for users that the model has not met: its number is the number of users."""
    return torch.cat([rows, torch.zeros(1, rows.shape[1], dtype=rows.dtype, device=rows.device)])

"""Factors with the ids that they belong to: of items from the decoder, of known users from the encoder."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from milrec.errors import SettingsError
from milrec.kernels.sparse import Rows
from milrec.models.contract import ROWS, LatentModel
from milrec.models.inputs import Users
from milrec.training.artifact import Fitted

FactorRows = npt.NDArray[np.float32]


class IdFactors(NamedTuple):
    """A row of factors for each id; `ids, values = …` takes the two apart."""

    ids: list[Any]
    values: FactorRows  # (n_ids, n_factors)

    def __repr__(self) -> str:
        n_ids, n_factors = self.values.shape
        return f"<IdFactors: {n_ids:,} ids, {n_factors:,} factors each; ids, values = …>"

    def as_table(self) -> pa.Table:
        """Columns `id` and `factors`, which holds lists of one length: for Parquet, DuckDB or a vector database."""
        width = self.values.shape[1]
        flat = pa.array(np.ascontiguousarray(self.values).reshape(-1), type=pa.float32())
        return pa.table({"id": pa.array(self.ids), "factors": pa.FixedSizeListArray.from_arrays(flat, width)})

    def to_pandas(self) -> Any:
        """A data frame with the ids as its index and a column for each factor."""
        columns = {str(number): column for number, column in enumerate(self.values.T)}
        return pa.table({"id": pa.array(self.ids), **columns}).to_pandas().set_index("id")


def item_factors(fitted: Fitted) -> IdFactors:
    """The rows of the decoder: an item's logit is its row times the user's, plus its bias."""
    values = _latent_model(fitted).decoder_weight.detach().cpu().numpy().copy()
    return IdFactors(fitted.train.items["id"].to_pylist(), values)


def user_factors(fitted: Fitted) -> IdFactors:
    """The latents of the users of the training part, as lists are made from them."""
    model, train = _latent_model(fitted), fitted.train
    if not train.has_users:
        raise SettingsError("the model was saved without its users, so it has no user factors")
    values = np.empty((train.n_users, model.width), dtype=np.float32)
    for start in range(0, train.n_users, ROWS):
        numbers = np.arange(start, min(start + ROWS, train.n_users))
        users = Users(Rows.of(train.adopted, numbers), Rows.of(train.rejected, numbers), numbers)
        with torch.no_grad():
            values[numbers] = model.latents(users)[: len(numbers)].cpu().numpy()
    return IdFactors(train.users["id"].to_pylist(), values)


def _latent_model(fitted: Fitted) -> LatentModel:
    model = fitted.model.eval().latent_form
    if model is None:
        name = fitted.settings.model.model
        raise SettingsError(f"model '{name}' has no factors; its lists come from weights between items or from counts")
    return model

"""A served value function: what it predicts of a state is compared with what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.models.predictor import ExpansionModel
from ridgestream.stores.schema.row_batch import Rows


@dataclass(frozen=True)
class ValueModel(ExpansionModel):
    """V(x) = Σ β_i k(x_i, x)."""

    discount: float = 1.0
    """γ."""

    @classmethod
    def of(cls, model: ExpansionModel, discount: float) -> Self:
        """Return an expansion as the value function of a policy."""
        return cls(model.basis, model.coefficients, model.feature_map, discount=discount)

    def truth(self, rows: Rows, maps: Sequence[npt.NDArray[np.int64]], targets: Floats) -> Floats:
        """Return r + γV(x′) of transitions, and the targets of other rows, which are true values."""
        if rows.ahead is None:
            return targets
        discounts = self.discount * (1.0 - rows.ahead[:, -1:])
        return np.asarray(targets + discounts * self.predict(rows.ahead[:, :-1], rows.codes, maps))

"""The rules of columns in a model's parameters."""

from typing import Any

import pytest

from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.schema.column_rules import OF_NEW_MODELS, OF_OLDER_MODELS, ColumnRules, rules_of, with_rules


def test_what_is_said_goes_before_what_is_known() -> None:
    said = ColumnRules(timestamps="both", columns={"x": "raw"})
    assert said.within(OF_NEW_MODELS) == ColumnRules("plain", "columns", "both", {"x": "raw"})
    assert ColumnRules().within(OF_OLDER_MODELS) == OF_OLDER_MODELS


def test_parameters_keep_the_rules_and_those_without_are_an_older_release_s() -> None:
    rules = ColumnRules("plain", "common", "elapsed", {"x": "standardized"})
    assert rules_of({"source": rules.parameters()}) == rules
    assert with_rules({"method": "ols"}) == {"method": "ols", "source": OF_OLDER_MODELS.parameters()}


@pytest.mark.parametrize("damaged", [3, None, [1], {"a": "b"}, {"indicators": 5}, {"columns": ["x"]}])
def test_damaged_rules_are_refused(damaged: Any) -> None:
    with pytest.raises(ModelError, match="its rules of columns are none"):
        rules_of({"source": damaged})

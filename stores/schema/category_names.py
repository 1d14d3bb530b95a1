"""The names of numbers as categories: one value has one name, whatever the type of its column in a file.

An integer, a float and a decimal of the same value have the same name, and so do 0.0 and −0.0. Fractions are named by
the shortest text that a float of their width has, so 0.1 is the same category as float32, float64 and decimal. Booleans
are `true` and `false`. Text stays as it is: normal forms of Unicode, and "3.0" and "3", are different.
"""

import re
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBER = re.compile(r"-?[0-9]{1,320}(?:\.[0-9]{1,80})?(?:[eE][+-]?[0-9]{1,3})?")
"""A number as Arrow writes it."""


def category_names(values: "pa.Array", *, by_value: bool) -> "pa.DictionaryArray":
    """Return a column of text, numbers or booleans as a dictionary of names, in the order of first appearance.

    Two entries of the dictionary may have the same name. Without `by_value`, numbers are named by Arrow's text for
    their type, as in stores of earlier releases: a decimal 3.00 is not 3, and −0.0 is not 0.
    """
    import pyarrow as pa
    import pyarrow.types as t

    if by_value and t.is_floating(values.type):
        encoded = values.dictionary_encode()
        texts = encoded.dictionary.cast(pa.string()).to_pylist()
        pairs = zip(encoded.dictionary.to_pylist(), texts, strict=True)
        names = [str(int(value)) if value.is_integer() else text for value, text in pairs]
    else:
        encoded = values.cast(pa.string()).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if by_value and t.is_decimal(values.type):
            names = [name_by_value(Decimal(text)) for text in names]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(names, pa.string()))


def name_by_value(value: Decimal) -> str:
    """Return the name of a finite number."""
    if value == value.to_integral_value():
        return str(int(value))
    shortest = repr(float(value))
    return _arrow_text(float(shortest)) if Decimal(shortest) == value else format(value, "f").rstrip("0")


def is_by_value(name: str) -> bool:
    """Return whether a category has the name that `name_by_value` gives, or is no number."""
    return not _NUMBER.fullmatch(name) or name == name_by_value(Decimal(name))


def _arrow_text(value: float) -> str:
    import pyarrow as pa

    return str(pa.array([value]).cast(pa.string())[0].as_py())

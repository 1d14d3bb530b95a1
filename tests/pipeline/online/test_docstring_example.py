"""The example in the learner's docstring runs and gives what it prints."""

import doctest

from ridgestream.pipeline.online import online_ls_svm


def test_the_example_in_the_docstring_runs() -> None:
    result = doctest.testmod(online_ls_svm)
    assert result.attempted >= 15
    assert result.failed == 0

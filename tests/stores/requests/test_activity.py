"""What a process waits for: the oldest of what is under way, with how much of it is done."""

import pytest

from ridgestream.stores.requests.activity import Activity, in_background


def test_what_has_been_under_way_for_longest_is_named() -> None:
    activity = Activity()
    with activity.under_way("the whole"):
        with activity.under_way("a part"):
            assert activity.waits_for() == "the whole"
        assert activity.waits_for() == "the whole"
    activity.moved("the last step")
    assert activity.waits_for() == "the last step"


def test_items_are_counted_while_they_are_worked_on() -> None:
    activity = Activity()
    names = [activity.waits_for() for _ in activity.counted(range(1001), "the drift of partitions")]
    assert names[0] == "the drift of partitions, 0 of 1,001 done"
    assert names[-1] == "the drift of partitions, 1,000 of 1,001 done"
    assert activity.waits_for() == "its first step"


def test_what_is_left_early_is_under_way_no_longer() -> None:
    activity = Activity()
    with pytest.raises(ValueError, match="the second"):
        fail_at(activity, 2)
    assert activity.waits_for() == "its first step"


def fail_at(activity: Activity, last: int) -> None:
    for item in activity.counted([1, 2, 3], "three"):
        if item == last:
            raise ValueError("the second")


def test_a_thread_in_the_background_is_not_named() -> None:
    activity = Activity()
    with in_background():
        assert [activity.waits_for() for _ in activity.counted([1], "one")] == ["its first step"]

"""The course of drift: begun once, settled or ended once; few rows judged together; columns that do not matter."""

import pytest
from benchmarks.drift_alarms import Feed, mix, shift
from support.points import points

from ridgestream.pipeline.monitoring.column_course import SETTLED, ColumnCourse, News

ROWS, TRAINING_ROWS = 300, 3000
MOVED, MOVED_ELSEWHERE = shift(2.0), shift(-2.0)


def calm_feed(**importance: float) -> Feed:
    feed = Feed(seed=0, training_rows=TRAINING_ROWS, importance=importance)
    assert [feed.next_night(ROWS) for _ in range(3)] == [News()] * 3
    return feed


def test_a_drift_is_news_as_it_begins_and_as_it_becomes_the_new_normal() -> None:
    feed = calm_feed()
    news = [feed.next_night(ROWS, MOVED) for _ in range(SETTLED + 3)]
    assert news == [News(began=("x0",)), *[News()] * (SETTLED - 1), News(settled=("x0",)), News(), News()]


def test_a_drift_that_goes_back_has_ended_and_may_begin_again() -> None:
    feed = calm_feed()
    changes = [MOVED, MOVED, None, None, MOVED]
    news = [feed.next_night(ROWS, change) for change in changes]
    assert news == [News(began=("x0",)), News(), News(ended=("x0",)), News(), News(began=("x0",))]


def test_a_new_normal_and_the_old_one_may_alternate_and_a_third_state_is_news() -> None:
    feed = calm_feed()
    for _ in range(SETTLED + 1):
        feed.next_night(ROWS, MOVED)
    assert [feed.next_night(ROWS, change) for change in (None, MOVED, None, MOVED)] == [News()] * 4
    assert feed.next_night(ROWS, MOVED_ELSEWHERE) == News(began=("x0",))


def test_a_column_that_goes_on_moving_is_news_once_and_stays_open() -> None:
    feed = calm_feed()
    news = [feed.next_night(ROWS, shift(float(step))) for step in range(2, 3 * SETTLED, 2)]
    assert news == [News(began=("x0",))] + [News()] * (len(news) - 1)
    assert feed.follower.courses["x0"].since is not None


def test_what_is_accepted_is_normal_at_once_and_drift_from_there_is_news() -> None:
    feed = calm_feed()
    feed.next_night(ROWS, MOVED)
    feed.follower.courses["x0"] = feed.follower.courses["x0"].accepted()
    assert [feed.next_night(ROWS, MOVED) for _ in range(2)] == [News()] * 2
    assert feed.next_night(ROWS, MOVED_ELSEWHERE) == News(began=("x0",))


def test_a_column_that_the_metric_ignores_is_no_news_and_one_that_it_weighs_less_must_move_further() -> None:
    assert calm_feed(x0=0.0).next_night(ROWS, shift(100.0)) == News()
    assert calm_feed(x0=0.3).next_night(ROWS, shift(0.75)) == News()
    assert calm_feed(x0=0.3).next_night(ROWS, MOVED) == News(began=("x0",))


@pytest.mark.parametrize("rows", points([4, 10, 30], [4]))
def test_partitions_of_few_rows_are_judged_together_and_settle(rows: int) -> None:
    feed = Feed(seed=0, training_rows=TRAINING_ROWS)
    assert {feed.next_night(rows) for _ in range(20)} == {News()}
    news = [each for _ in range(20) if (each := feed.next_night(rows, shift(1.5))) != News()]
    assert news == [News(began=("x0",)), News(settled=("x0",))]


def test_a_mix_of_categories_is_followed_too() -> None:
    assert calm_feed().next_night(ROWS, mix(0.3)) == News(began=("t0",))


def test_a_course_survives_json() -> None:
    course = ColumnCourse().begun(7, [5, 6, 7]).joined(8).accepted().begun(9, [9])
    assert course.normals == ((5, 6, 7, 8),)
    assert ColumnCourse.from_plain(course.as_plain()) == course

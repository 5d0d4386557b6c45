"""What a line of progress says, and when: on a clock of the test's own, without Spark."""

from keyshared.spark.runtime.progress_lines import ProgressLines, StageSeen


def lines(*, every_s: float = 5.0, quiet_s: float = 2.0, terminal: bool = False) -> ProgressLines:
    return ProgressLines("working", 100.0, every_s=every_s, quiet_s=quiet_s, terminal=terminal)


def times_of_lines(told: ProgressLines, seconds: int) -> list[int]:
    return [second for second in range(1, seconds + 1) if told.look(100.0 + second, [])]


def test_what_is_over_soon_writes_nothing() -> None:
    told = lines()
    assert "" == told.look(101.0, [StageSeen(1, 2, 1, 10)])
    assert "" == told.end(101.9, failed=False)


def test_what_took_longer_says_so_once() -> None:
    assert "working: done in 2.0 s" == lines().end(102.0, failed=False)
    assert "working: failed after 3.5 s" == lines().end(103.5, failed=True)


def test_without_a_quiet_time_every_end_is_told() -> None:
    assert "working: done in 0.0 s" == lines(quiet_s=0).end(100.0, failed=False)


def test_whole_lines_come_every_few_seconds_at_first_and_fewer_later() -> None:
    assert [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 61, 68, 75, 83, 92] == times_of_lines(lines(), 100)


def test_an_hour_and_a_day_have_few_lines() -> None:
    assert 47 == len(times_of_lines(lines(every_s=10), 3_600))
    assert 80 == len(times_of_lines(lines(every_s=10), 86_400))


def test_the_quiet_time_holds_back_the_first_line() -> None:
    assert [7, 8, 9] == times_of_lines(lines(every_s=1, quiet_s=7), 9)


def test_tasks_and_rows_are_those_of_the_running_stages() -> None:
    told = lines(every_s=1, quiet_s=0)
    told.look(101.0, [StageSeen(1, 4, 4, 1_000)])
    both = [StageSeen(2, 1_200, 700, 5_000_000), StageSeen(3, 8, 0, 0)]
    assert "working: 700 of 1,208 tasks, 5,000,000 rows, 1,250,000 rows/s, 5.0 s" == told.look(105.0, both)


def test_a_stage_that_reads_no_more_gets_slower() -> None:
    told = lines(every_s=1, quiet_s=0)
    found = [told.look(100.0 + second, [StageSeen(1, 3, 0, 12_000)]) for second in (1, 2, 6)]
    assert ["12,000 rows/s", "6,000 rows/s", "2,000 rows/s"] == [line.split(", ")[2] for line in found]


def test_rows_from_python_are_told_beside_those_that_were_read() -> None:
    told = lines(every_s=1, quiet_s=0)
    stage = StageSeen(1, 2, 0, 0)
    told.look(101.0, [stage], {7: 0})
    assert "working: 0 of 2 tasks, 900 rows from Python, 300 rows/s, 3.0 s" == told.look(
        103.0, [stage], {7: 600, 8: 300}
    )
    read = stage._replace(done=1, rows=1_000)
    expected = "working: 1 of 2 tasks, 1,000 rows, 250 rows/s, 950 rows from Python, 4.0 s"
    assert expected == told.look(104.0, [read], {7: 650, 8: 300})


def test_rows_from_python_of_stages_before_are_left_out() -> None:
    told = lines(every_s=1, quiet_s=0)
    told.look(101.0, [StageSeen(1, 2, 1, None)], {7: 0})
    assert "working: 0 of 2 tasks, 2.0 s" == told.look(102.0, [StageSeen(2, 2, 0, None)], {7: 500})
    found = told.look(103.0, [StageSeen(2, 2, 0, None)], {7: 500, 8: 40})
    assert "working: 0 of 2 tasks, 40 rows from Python, 20 rows/s, 3.0 s" == found


def test_a_query_that_is_over_takes_its_rows_along() -> None:
    told = lines(every_s=1, quiet_s=0)
    told.look(101.0, [StageSeen(1, 2, 0, None)], {7: 500})
    assert "working: 0 of 2 tasks, 2.0 s" == told.look(102.0, [StageSeen(1, 2, 0, None)], {})


def test_a_new_stage_has_a_rate_of_its_own() -> None:
    told = lines(every_s=1, quiet_s=0)
    told.look(110.0, [StageSeen(1, 2, 1, 40)])
    assert "working: 0 of 2 tasks, 100 rows, 50 rows/s, 12.0 s" == told.look(112.0, [StageSeen(2, 2, 0, 100)])


def test_rows_that_spark_does_not_tell_or_that_are_none_yet_are_not_shown() -> None:
    told = lines(every_s=1, quiet_s=0)
    assert "working: 1 of 2 tasks, 1.0 s" == told.look(101.0, [StageSeen(1, 2, 1, None)])
    assert "working: 1 of 2 tasks, 2.0 s" == told.look(102.0, [StageSeen(1, 2, 1, 0)])
    assert "working: 3.0 s" == told.look(103.0, [])


def test_tasks_that_ran_twice_are_not_more_than_there_are() -> None:
    told = lines(every_s=1, quiet_s=0)
    assert "working: 2 of 2 tasks, 1.0 s" == told.look(101.0, [StageSeen(1, 2, 3, None)])


def test_a_terminal_gets_a_line_at_every_look_once_the_quiet_time_is_over() -> None:
    told = lines(quiet_s=0.3, terminal=True)
    assert "" == told.look(100.2, [])
    assert "working: 1 of 10 tasks, 0.4 s" == told.look(100.4, [StageSeen(1, 10, 1, None)])
    assert "working: 0.6 s" == told.look(100.6, [])
    assert "working: done in 0.7 s" == told.end(100.7, failed=False)


def test_a_terminal_is_drawn_more_often_than_a_file_is_looked_after() -> None:
    assert (0.25, 1.0) == (lines(terminal=True).pause_s, lines().pause_s)

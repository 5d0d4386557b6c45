from tests.transports.diary import Verdict, judge


def test_the_judge_of_a_diary_sees_each_fault() -> None:
    sent = {"a": 2, "b": 1}
    fine = ["start 1 a/0/0", "end 1 a/0/0", "start 2 b/1/0", "start 1 a/2/1", "reject 2 b/1/0", "end 1 a/2/1"]
    assert judge(fine, sent) == Verdict(0, 0, 0, 3, 0)
    assert judge(fine[:-1], sent).lost == 1
    assert judge([fine[3], fine[5], *fine[:2]], sent).out_of_order == 1
    assert judge([fine[0], "start 2 a/0/0"], sent).at_once == 1
    assert judge([fine[0], "killed 1 -", "start 2 a/0/0"], sent).at_once == 0
    assert judge([*fine[:2], *fine], sent).again == 1
    assert judge([fine[0], "cancelled 1 a/0/0", *fine], sent) == Verdict(0, 0, 0, 3, 0)

"""The fixture that the package gives to pytest."""


def test_a_reminder_of_30_days(dwell):
    dwell.client.push("reminders", "renew", delay="30d")
    assert dwell.advance("29d").due == []
    assert dwell.advance("1d").due[0]["messages"] == 1


def test_each_test_has_a_broker_of_its_own(dwell):
    assert dwell.advance("30d").due == []

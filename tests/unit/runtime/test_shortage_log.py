"""One line when a shortage begins and one when it ends, however many meet it."""

import logging

import pytest

from app.domain.shortages import Shortage
from app.runtime.shortage_log import Lack, ShortageLog


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in caplog.records]


def test_it_is_said_once_however_often_it_is_met(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shortages = ShortageLog()
    shortages.ends("sends")
    for _ in range(3):
        shortages.begins("sends", Shortage.ROOM, "messages are refused")
        shortages.begins("checkpoint", Shortage.ROOM, "no checkpoint is written")
    assert levels(caplog) == [logging.WARNING]
    assert "the disk has no room: messages are refused; free some space" in caplog.text
    assert shortages.now() == (
        Lack(Shortage.ROOM, "messages are refused"),
        Lack(Shortage.ROOM, "no checkpoint is written"),
    )
    shortages.ends("sends")
    assert levels(caplog) == [logging.WARNING]
    shortages.ends("checkpoint")
    shortages.ends("checkpoint")
    assert levels(caplog) == [logging.WARNING, logging.INFO]
    assert shortages.now() == ()


def test_each_shortage_is_said_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shortages = ShortageLog()
    shortages.begins("sends", Shortage.ROOM, "messages are refused")
    shortages.begins("sends", Shortage.DESCRIPTORS, "messages are refused")
    assert levels(caplog) == [logging.WARNING, logging.INFO, logging.WARNING]
    shortages.ends("sends")
    assert levels(caplog)[3:] == [logging.INFO]

"""RocketMQ's JSON files, in both spellings of their maps."""

import pytest

from app.store.offline.rocketmq_settings import (
    RocketOffset,
    SettingsDamaged,
    is_system_topic,
    read_delay_offsets,
    read_offsets,
    read_topics,
)

TOPICS = b"""{
  "dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},
  "topicConfigTable":{
    "orders":{"attributes":{"+message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":8,
      "topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":4},
    "TBW102":{"perm":7,"readQueueNums":8,"writeQueueNums":8},
    "old":{"perm":6,"readQueueNums":1,"writeQueueNums":2,"attributes":null}
  }}"""


def test_topics() -> None:
    topics = read_topics(TOPICS)
    assert list(topics) == ["orders", "TBW102", "old"]
    assert (topics["orders"].queues, topics["orders"].message_type) == (8, "FIFO")
    assert (topics["old"].queues, topics["old"].message_type) == (2, "NORMAL")
    assert topics["TBW102"].perm == 7
    assert read_topics(b"{}") == {}


def test_offsets_with_and_without_quotes() -> None:
    bare = b'{"offsetTable":{\n"orders@billing":{0:12,1:7},"%RETRY%g@g":{ 0 : 1 }, "odd":{0:1}}}'
    expected = [
        RocketOffset("billing", "orders", 0, 12),
        RocketOffset("billing", "orders", 1, 7),
        RocketOffset("g", "%RETRY%g", 0, 1),
    ]
    assert read_offsets(bare) == expected
    quoted = b'{"offsetTable":{"orders@billing":{"0":12,"1":7},"%RETRY%g@g":{"0":1},"odd":{"0":1}}}'
    assert read_offsets(quoted) == expected
    assert read_delay_offsets(b'{"dataVersion":{},"offsetTable":{1:5,18:9}}') == {1: 5, 18: 9}


def test_numbers_inside_text_are_left_alone() -> None:
    name = r"a{0:1,\"2:3"
    text = f'{{"offsetTable":{{"{name}@g":{{0:4}}}}}}'.encode()
    assert read_offsets(text) == [RocketOffset("g", 'a{0:1,"2:3', 0, 4)]


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"offsetTable":{"a@b":{"x":1}}}', b"[]"])
def test_damage_is_told(text: bytes) -> None:
    with pytest.raises(SettingsDamaged):
        read_offsets(text)


def test_system_topics() -> None:
    system = ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"]
    system += ["DefaultCluster_REPLY_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "BenchmarkTest"]
    assert all(map(is_system_topic, system))
    assert not any(map(is_system_topic, ["orders", "%RETRY%g", "tbw102", "MY_RMQ_SYS_"]))

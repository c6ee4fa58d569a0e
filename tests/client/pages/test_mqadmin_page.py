"""The page of mqadmin has a row for each of its commands, and names commands that are there."""

import re

import pytest
from curlew_client.command.catalog import COMMANDS
from curlew_client.command.entry import main
from curlew_client.command.running import app_of

from tests.support.nodes.node import ROOT

PAGE = (ROOT / "docs" / "rocketmq" / "mqadmin.md").read_text()
NONE = "\N{EN DASH}"
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| `")]
NAMES = """
DecodeMessageId addBroker addWritePerm allocateMQ brokerConsumeStats brokerStatus checkMsgSendRT
checkRocksdbCqWriteProgress cleanBrokerMetadata cleanExpiredCQ cleanUnusedTopic cloneGroupOffset
clusterAclConfigVersion clusterList clusterRT consumeMessage consumer consumerConnection
consumerProgress consumerStatus copyAcl copyUser createAcl createUser deleteAcl deleteAclConfig
deleteExpiredCommitLog deleteKvConfig deleteSubGroup deleteTopic deleteUser dumpCompactionLog
electMaster exportConfigs exportMetadata exportMetadataInRocksDB exportMetrics exportPopRecord
getAcl getBrokerConfig getBrokerEpoch getColdDataFlowCtrInfo getConsumerConfig getConsumerStatus
getControllerConfig getControllerMetaData getNamesrvConfig getSyncStateSet getUser haStatus
listAcl listUser printMsg printMsgByQueue producer producerConnection queryCq queryMsgById
queryMsgByKey queryMsgByOffset queryMsgByUniqueKey queryMsgTraceById remappingStaticTopic
removeBroker removeColdDataFlowCtrGroupConfig resetMasterFlushOffset resetOffsetByTime
resetOffsetByTimeOld rocksDBConfigToJson sendMessage sendMsgStatus setCommitLogReadAheadMode
setConsumeMode skipAccumulatedMessage startMonitoring statsAll topicClusterList topicList
topicRoute topicStatus updateAcl updateAclConfig updateBrokerConfig
updateColdDataFlowCtrGroupConfig updateControllerConfig updateGlobalWhiteAddr updateKvConfig
updateNamesrvConfig updateOrderConf updateStaticTopic updateSubGroup updateSubGroupList
updateTopic updateTopicList updateTopicPerm updateUser wipeWritePerm
"""
"""Of RocketMQ 5 as its source registers them, with those that only 4.9 has."""


def test_each_command_of_mqadmin_has_a_row_and_no_other() -> None:
    named = sorted(name for row in ROWS for name in re.findall(r"`(\w+)`", row[0]))
    assert named == NAMES.split()


def test_a_row_says_what_does_the_same_or_why_it_is_not_here() -> None:
    for names, ours, here in ROWS:
        assert here.strip(), names
        if ours.strip() == NONE:
            assert "Not here: " in here or "GET" in here, names


def our_commands() -> list[str]:
    """The commands of ours that the page names in full, each once."""
    found: dict[str, None] = {}
    for row in ROWS:
        for text in re.findall(r"`(?:curlew )?([a-z][^`]*)`", row[1]):
            name, *rest = text.split()
            if name in COMMANDS:
                found[" ".join([name, *rest[: bool(app_of(name).commands)]])] = None
    return list(found)


@pytest.mark.parametrize("words", our_commands())
def test_a_command_of_ours_is_there(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([*words.split(), "--help"])
    shown = capsys.readouterr()
    assert (status, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: curlew {words}")


def test_the_page_names_most_of_them() -> None:
    assert len(our_commands()) > 35

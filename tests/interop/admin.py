#!/usr/bin/env python3
"""The two administrative requests that the clients under test cannot send, over the remoting protocol.

    admin.py NAMESRV topic NAME...              creates topics with four queues and waits for their routes
    admin.py NAMESRV group NAME RETRY_MAX       creates a consumer group with a limit of retries
"""

import json
import re
import socket
import struct
import sys
import time

GET_ROUTE = 105
CREATE_TOPIC = 17
CREATE_GROUP = 200
SUCCESS = 0
TOPIC_NOT_EXIST = 17
# Its route names every broker that creates topics by itself.
TEMPLATE_TOPIC = "TBW102"
TIMEOUT_SECONDS = 10


def create_topics(namesrv, names):
    broker = broker_address(namesrv)
    for name in names:
        request(broker, CREATE_TOPIC, {
            "topic": name, "defaultTopic": TEMPLATE_TOPIC, "readQueueNums": "4", "writeQueueNums": "4",
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        })
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not all(route(namesrv, name) for name in names):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no routes of {names}")
        time.sleep(0.1)


def create_group(namesrv, name, retry_max_times):
    request(broker_address(namesrv), CREATE_GROUP, {}, json.dumps({
        "groupName": name, "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
        "retryQueueNums": 1, "retryMaxTimes": retry_max_times, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
    }).encode())


def broker_address(namesrv):
    # The keys of brokerAddrs may be bare numbers, which json does not read.
    found = re.search(r'"?0"?:"([^"]+:\d+)"', route(namesrv, TEMPLATE_TOPIC))
    if not found:
        raise RuntimeError("the name server knows no broker")
    return found.group(1)


def route(namesrv, topic):
    """The route as text, empty when there is none."""
    return request(namesrv, GET_ROUTE, {"topic": topic}, accepted=(SUCCESS, TOPIC_NOT_EXIST)).decode()


def request(address, code, fields, body=b"", accepted=(SUCCESS,)):
    header = json.dumps({
        "code": code, "language": "PYTHON", "version": 317, "opaque": 1, "flag": 0, "extFields": fields,
    }).encode()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
        frame = receive(connection, struct.unpack(">I", receive(connection, 4))[0])
    header_length = struct.unpack(">I", frame[:4])[0] & 0xFFFFFF
    answer = json.loads(frame[4:4 + header_length])
    if answer["code"] not in accepted:
        raise RuntimeError(f"request {code} refused with {answer['code']}: {answer.get('remark')}")
    return frame[4 + header_length:]


def receive(connection, length):
    received = b""
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            raise RuntimeError("the connection was closed in the middle of an answer")
        received += part
    return received


def main():
    match sys.argv[1:]:
        case [namesrv, "topic", *names] if names:
            create_topics(namesrv, names)
        case [namesrv, "group", name, retry_max_times]:
            create_group(namesrv, name, int(retry_max_times))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()

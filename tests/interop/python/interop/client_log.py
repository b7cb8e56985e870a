"""What the C++ library writes to its log and does not tell the program."""

import os
import pathlib


def lines():
    folder = pathlib.Path(os.environ["HOME"], "logs", "rocketmq-cpp")
    for log in folder.glob(f"{os.getpid()}_rocketmq-cpp.log*"):
        yield from log.read_text(errors="replace").splitlines()


def refusals():
    """The texts with which a broker refused requests."""
    return [line for line in lines() if "error remark:" in line]


def lost_send_backs():
    """Messages that were to be retried, but which the library neither sent back nor kept."""
    return [line for line in lines() if "response is null" in line and "[sendMessageBack:" in line]

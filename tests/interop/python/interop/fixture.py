"""Names and clients of one case.

Clients run until the process ends, unless a case stops them: the library's shutdown can abort the process, when it
interrupts a thread at a bad moment, and the wrapper shuts down what is no longer referenced.
"""

import ctypes
import os
import secrets
import time

import admin
from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import MessageModel, dll

from interop import check
from interop.inbox import SETTLE_SECONDS, WARM_UP, Inbox

# Expect what the Java broker does differently.
JAVA_BROKER = "INTEROP_JAVA_BROKER" in os.environ
CONSUME_SUCCESS, RECONSUME_LATER = 0, 1
LOOKING_SECONDS = 1.5

# In the library, not in the wrapper.
dll.SetProducerCompressMsgBodyOverHowmuch.argtypes = [ctypes.c_void_p, ctypes.c_int]


started = []


class Fixture:
    def __init__(self, namesrv, name):
        self.namesrv = namesrv
        self._unique = f"{name}-{secrets.token_hex(4)}"
        self.topic = f"interop-{self._unique}"
        self.group = f"interop-group-{self._unique}"
        self._instances = 0
        self._producer = None

    @property
    def producer(self):
        """Started, the same at each access."""
        if self._producer is None:
            self._producer = self.new_producer()
        return self._producer

    def new_producer(self, compress_over=None, **options):
        producer = Producer(f"interop-producer-{self._unique}", timeout=options.pop("timeout", 10_000), **options)
        producer.set_namesrv_addr(self.namesrv)
        ffi_check(dll.SetProducerInstanceName(producer._handle, self._next_instance()))
        if compress_over is not None:
            ffi_check(dll.SetProducerCompressMsgBodyOverHowmuch(producer._handle, compress_over))
        producer.start()
        started.append(producer)
        return producer

    def push(self, listener, topic=None, group=None, tags="*", orderly=False, model=MessageModel.CLUSTERING):
        """Starts a consumer; `listener` gets each message and returns whether it is done with it.

        The wrapper's own `subscribe` is not used: after an exception of the listener it returns no status at all.
        """
        def receive(_consumer, message):
            return CONSUME_SUCCESS if listener(RecvMessage(message)) else RECONSUME_LATER

        consumer = PushConsumer(group or self.group, orderly=orderly, message_model=model)
        consumer.set_namesrv_addr(self.namesrv)
        consumer.set_instance_name(self._next_instance())
        ffi_check(dll.Subscribe(consumer._handle, (topic or self.topic).encode(), tags.encode()))
        consumer._register_callback(receive)
        consumer.start()
        started.append(consumer)
        # The library begins at the end of a queue that has no committed offset and no message yet, so what is sent
        # while it looks would be passed over.
        time.sleep(LOOKING_SECONDS)
        return consumer

    def pull_consumer(self, group=None):
        consumer = PullConsumer(group or self.group)
        consumer.set_namesrv_addr(self.namesrv)
        consumer.start()
        started.append(consumer)
        return consumer

    def read_all(self, count, topic=None):
        """Pulls from every queue until `count` messages came, and then what else there is."""
        topic = topic or self.topic
        self.await_route(topic)
        inbox = Inbox()
        reader = self.pull_consumer(f"interop-reader-{self._unique}")

        def has_read():
            for message in reader.pull(topic):
                inbox.take(message)
            return len(inbox.messages) >= count

        check.eventually(f"{count} messages in {topic}", has_read)
        time.sleep(SETTLE_SECONDS)
        has_read()
        return inbox

    def create_topic(self):
        """By a first message, which the inbox leaves out."""
        self.producer.send_sync(self.message(WARM_UP))
        self.await_route(self.topic)

    def await_route(self, topic):
        """A consumer that starts before the route is there would look again only after 30 s."""
        check.eventually(f"a route of {topic}", lambda: admin.route(self.namesrv, topic))

    def message(self, body, tags=None, keys=None):
        message = Message(self.topic)
        ffi_check(dll.SetByteMessageBody(message, body, len(body)))
        if tags:
            message.set_tags(tags)
        if keys:
            message.set_keys(keys)
        return message

    def send_all(self, bodies):
        for body in bodies:
            self.producer.send_sync(self.message(body))

    def _next_instance(self):
        self._instances += 1
        return f"{self._unique}-{self._instances}".encode()


def numbered(prefix, count):
    return [f"{prefix}-{index}".encode() for index in range(count)]

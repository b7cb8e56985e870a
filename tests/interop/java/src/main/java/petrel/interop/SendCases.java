package petrel.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The ways to send; what arrived is read back with a pull consumer. */
final class SendCases {
    private static final int COUNT = 40;

    private SendCases() {
    }

    static void register(Map<String, Case> cases) {
        cases.put("send-sync", SendCases::sync);
        cases.put("send-async", SendCases::async);
        cases.put("send-oneway", SendCases::oneway);
        cases.put("send-batch", SendCases::batch);
        cases.put("send-ordered", SendCases::ordered);
    }

    private static void sync(Fixture fixture) throws Exception {
        Map<String, SendResult> results = new LinkedHashMap<>();
        for (String body : Fixture.bodies("sync", COUNT)) {
            results.put(body, fixture.producer().send(fixture.message(body)));
        }
        checkReceipts(results, fixture.readAll(fixture.topic, COUNT));
    }

    private static void async(Fixture fixture) throws Exception {
        fixture.createTopic();
        Map<String, SendResult> results = Collections.synchronizedMap(new LinkedHashMap<>());
        List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch answered = new CountDownLatch(COUNT);
        for (String body : Fixture.bodies("async", COUNT)) {
            fixture.producer().send(fixture.message(body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results.put(body, result);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    errors.add(error);
                    answered.countDown();
                }
            });
        }
        Check.that(answered.await(Check.PATIENCE.toSeconds(), TimeUnit.SECONDS), "an answer to each async send");
        Check.equal(List.of(), errors, "errors");
        checkReceipts(results, fixture.readAll(fixture.topic, COUNT));
    }

    private static void oneway(Fixture fixture) throws Exception {
        fixture.createTopic();
        List<String> bodies = Fixture.bodies("oneway", COUNT);
        for (String body : bodies) {
            fixture.producer().sendOneway(fixture.message(body));
        }
        Check.sameElements(bodies, bodiesOf(fixture.readAll(fixture.topic, COUNT)), "stored");
    }

    private static void batch(Fixture fixture) throws Exception {
        fixture.createTopic();
        List<String> bodies = Fixture.bodies("batch", COUNT);
        List<Message> messages = new ArrayList<>();
        for (String body : bodies) {
            messages.add(new Message(fixture.topic, "tag", "key-" + body, body.getBytes(StandardCharsets.UTF_8)));
        }
        SendResult result = fixture.producer().send(messages);
        Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "status");

        List<MessageExt> stored = fixture.readAll(fixture.topic, COUNT);
        Check.equal(bodies, bodiesOf(stored), "bodies in order");
        for (int index = 0; index < COUNT; index++) {
            MessageExt message = stored.get(index);
            Check.equal(result.getMessageQueue().getQueueId(), message.getQueueId(), "queue");
            Check.equal(result.getQueueOffset() + index, message.getQueueOffset(), "queue offset");
            Check.equal("key-" + bodies.get(index), message.getKeys(), "keys");
        }
        Check.equal(result.getMsgId(),
            stored.stream().map(MessageExt::getMsgId).collect(Collectors.joining(",")), "message ids");
    }

    private static void ordered(Fixture fixture) throws Exception {
        fixture.createTopic();
        Map<Integer, List<String>> sent = new LinkedHashMap<>();
        for (int step = 0; step < 10; step++) {
            for (int order = 0; order < 4; order++) {
                String body = "order-" + order + "-" + step;
                SendResult result = fixture.producer().send(fixture.message(body),
                    (queues, message, key) -> queues.get((Integer) key % queues.size()), order);
                sent.computeIfAbsent(result.getMessageQueue().getQueueId(), queue -> new ArrayList<>()).add(body);
            }
        }
        Check.equal(4, sent.size(), "queues used");
        Map<Integer, List<String>> stored = fixture.readAll(fixture.topic, COUNT).stream().collect(
            Collectors.groupingBy(MessageExt::getQueueId, Collectors.mapping(Inbox::body, Collectors.toList())));
        Check.equal(sent, stored, "bodies by queue");
    }

    /** Each receipt names the place and the ids of exactly the message it was given for. */
    private static void checkReceipts(Map<String, SendResult> results, List<MessageExt> stored) {
        Check.sameElements(results.keySet(), bodiesOf(stored), "stored");
        for (MessageExt message : stored) {
            SendResult result = results.get(Inbox.body(message));
            Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
            Check.equal(result.getMsgId(), message.getMsgId(), "message id");
            Check.equal(result.getMessageQueue().getQueueId(), message.getQueueId(), "queue");
            Check.equal(result.getQueueOffset(), message.getQueueOffset(), "queue offset");
        }
    }

    private static List<String> bodiesOf(List<MessageExt> messages) {
        return messages.stream().map(Inbox::body).toList();
    }
}

package petrel.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumption: concurrent, orderly, broadcast, by tag. */
final class PushCases {
    private static final int COUNT = 60;

    private PushCases() {
    }

    static void register(Map<String, Case> cases) {
        cases.put("push-concurrent", PushCases::concurrent);
        cases.put("push-orderly", PushCases::orderly);
        cases.put("broadcast", PushCases::broadcast);
        cases.put("tags", PushCases::tags);
    }

    private static void concurrent(Fixture fixture) throws Exception {
        fixture.createTopic();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.subscribe(fixture.topic, "*");
        consumer.registerMessageListener(inbox.listener());
        consumer.start();
        List<String> bodies = Fixture.bodies("concurrent", COUNT);
        fixture.sendAll(bodies);
        inbox.expectExactly(bodies);
    }

    /** One message of each queue is put off once; nothing of its queue may overtake it. */
    private static void orderly(Fixture fixture) throws Exception {
        fixture.createTopic();
        Inbox inbox = new Inbox();
        Set<String> suspended = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.subscribe(fixture.topic, "*");
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt message = messages.get(0);
            if (Inbox.body(message).endsWith("-5") && suspended.add(Inbox.body(message))) {
                context.setSuspendCurrentQueueTimeMillis(200);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            inbox.add(message);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();

        List<String> bodies = new ArrayList<>();
        for (int step = 0; step < 10; step++) {
            for (int order = 0; order < 4; order++) {
                String body = "order-" + order + "-" + step;
                fixture.producer().send(fixture.message(body),
                    (queues, message, key) -> queues.get((Integer) key), order);
                bodies.add(body);
            }
        }
        inbox.expectExactly(bodies);
        Check.equal(4, suspended.size(), "messages put off");
        Map<Integer, List<Long>> offsets = inbox.messages().stream().collect(Collectors.groupingBy(
            MessageExt::getQueueId, Collectors.mapping(MessageExt::getQueueOffset, Collectors.toList())));
        Check.equal(4, offsets.size(), "queues consumed");
        offsets.forEach((queue, came) ->
            Check.equal(came.stream().sorted().toList(), came, "order of queue " + queue));
    }

    private static void broadcast(Fixture fixture) throws Exception {
        fixture.createTopic();
        List<Inbox> inboxes = List.of(new Inbox(), new Inbox());
        for (Inbox inbox : inboxes) {
            DefaultMQPushConsumer consumer = fixture.pushConsumer();
            // The enum's package differs between the client lines, so it is not named.
            consumer.setMessageModel(
                Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
            consumer.subscribe(fixture.topic, "*");
            consumer.registerMessageListener(inbox.listener());
            consumer.start();
        }
        List<String> bodies = Fixture.bodies("broadcast", COUNT);
        fixture.sendAll(bodies);
        for (Inbox inbox : inboxes) {
            inbox.expectExactly(bodies);
        }
    }

    /** AaAa and BBBB have the same hash code, by which the broker filters. */
    private static void tags(Fixture fixture) throws Exception {
        fixture.createTopic();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.subscribe(fixture.topic, "TagA || AaAa");
        consumer.registerMessageListener(inbox.listener());
        consumer.start();
        List<String> wanted = new ArrayList<>();
        for (int index = 0; index < 10; index++) {
            for (String tag : List.of("TagA", "TagB", "AaAa", "BBBB")) {
                String body = tag + "-" + index;
                fixture.producer().send(
                    new Message(fixture.topic, tag, body.getBytes(StandardCharsets.UTF_8)));
                if (tag.equals("TagA") || tag.equals("AaAa")) {
                    wanted.add(body);
                }
            }
            fixture.producer().send(fixture.message("untagged-" + index));
        }
        inbox.expectExactly(wanted);
        Check.equal(Set.of("TagA", "AaAa"),
            inbox.messages().stream().map(MessageExt::getTags).collect(Collectors.toSet()), "tags");
    }
}

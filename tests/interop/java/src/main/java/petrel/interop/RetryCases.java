package petrel.interop;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that come later: delay levels, retries, the dead letter queue. */
final class RetryCases {
    private RetryCases() {
    }

    static void register(Map<String, Case> cases) {
        cases.put("delay", RetryCases::delay);
        cases.put("retry-dlq", RetryCases::retryThenDeadLetter);
    }

    /** Level 1 is one second, level 2 five. */
    private static void delay(Fixture fixture) throws Exception {
        fixture.createTopic();
        Map<String, Long> arrivedAt = new ConcurrentHashMap<>();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.subscribe(fixture.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                arrivedAt.putIfAbsent(Inbox.body(message), System.currentTimeMillis());
                inbox.add(message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        Map<String, Long> delays = Map.of("now", 0L, "level-1", 1000L, "level-2", 5000L);
        long sentAt = System.currentTimeMillis();
        send(fixture, "level-2", 2);
        send(fixture, "level-1", 1);
        send(fixture, "now", 0);
        inbox.expectExactly(delays.keySet());
        delays.forEach((body, millis) -> Check.that(arrivedAt.get(body) - sentAt >= millis,
            body + " came after " + (arrivedAt.get(body) - sentAt) + " ms, not before " + millis + " expected"));
    }

    private static void send(Fixture fixture, String body, int level) throws Exception {
        Message message = fixture.message(body);
        message.setDelayTimeLevel(level);
        fixture.producer().send(message);
    }

    /** Two retries one second apart: "once" succeeds at the second delivery, "never" ends in the dead letter queue. */
    private static void retryThenDeadLetter(Fixture fixture) throws Exception {
        fixture.createTopic();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.setMaxReconsumeTimes(2);
        // The retry topic is made by the first heartbeat; look for its route sooner than after 30 s.
        consumer.setPollNameServerInterval(1000);
        consumer.subscribe(fixture.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            inbox.add(message);
            context.setDelayLevelWhenNextConsume(1);
            boolean fails = switch (Inbox.body(message)) {
                case "never" -> true;
                case "once" -> message.getReconsumeTimes() == 0;
                default -> false;
            };
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        fixture.sendAll(List.of("good", "once", "never"));

        List<MessageExt> dead = fixture.readAll(MixAll.getDLQTopic(fixture.group()), 1);
        Check.equal(List.of("never"), dead.stream().map(Inbox::body).toList(), "dead letters");
        Check.equal(fixture.topic, dead.get(0).getProperty(MessageConst.PROPERTY_RETRY_TOPIC), "RETRY_TOPIC");

        inbox.expectExactly(List.of("good", "once", "once", "never", "never", "never"));
        Map<String, List<Integer>> times = inbox.messages().stream().collect(Collectors.groupingBy(
            Inbox::body, Collectors.mapping(MessageExt::getReconsumeTimes, Collectors.toList())));
        Check.equal(Map.of("good", List.of(0), "once", List.of(0, 1), "never", List.of(0, 1, 2)), times,
            "reconsume times");
        inbox.messages().forEach(message ->
            Check.equal(fixture.topic, message.getTopic(), "topic as the listener sees it"));
    }
}

package petrel.javastore;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A push consumer of a group that has consumed before: it must go on where the group's offsets say, and nowhere else. */
final class Readers {
    private Readers() {
    }

    /** How many messages it got; {@code lost} are queue and offset of a message that is known to be damaged, or null. */
    static int goOn(Link link, String namesrv, String group, String topic, String lost) throws Exception {
        awaitRoute(namesrv, topic);
        Map<Integer, Long> committed = committed(link, group, topic);
        Map<Integer, Long> ends = new HashMap<>();
        Set<String> wanted = ConcurrentHashMap.newKeySet();
        for (Map.Entry<Integer, Long> queue : committed.entrySet()) {
            ends.put(queue.getKey(), link.offset(Link.GET_MAX_OFFSET, topic, queue.getKey()));
            for (long offset = queue.getValue(); offset < ends.get(queue.getKey()); offset++) {
                wanted.add(queue.getKey() + "/" + offset);
            }
        }
        wanted.removeIf(place -> place.equals(lost));
        int count = wanted.size();
        Set<String> unwanted = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(Long.toString(System.nanoTime()));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            note(messages, topic, wanted, unwanted);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            Await.until("group " + group + " to get " + wanted, wanted::isEmpty);
            // What is still being consumed is not committed at the end.
            Await.until("group " + group + " to have consumed up to " + ends, () -> consumed(consumer, topic).equals(ends));
        } finally {
            consumer.shutdown();
        }
        if (!unwanted.isEmpty()) {
            throw new IllegalStateException("group " + group + " got what it had consumed before, or twice: " + unwanted);
        }
        Await.until("the offsets of group " + group + " to reach " + ends, () -> committed(link, group, topic).equals(ends));
        return count;
    }

    /** A Java broker serves before it is registered, and a consumer that finds no route looks again after half a minute. */
    private static void awaitRoute(String namesrv, String topic) throws Exception {
        try (Link link = new Link(namesrv)) {
            Await.until("a route to " + topic, () -> link.ask(Link.GET_ROUTE, Link.fields("topic", topic), null).getCode() == Link.SUCCESS);
        }
    }

    private static Map<Integer, Long> consumed(DefaultMQPushConsumer consumer, String topic) throws Exception {
        Map<Integer, Long> consumed = new HashMap<>();
        OffsetStore offsets = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(topic)) {
                consumed.put(queue.getQueueId(), offsets.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY));
            }
        }
        return consumed;
    }

    private static void note(List<MessageExt> messages, String topic, Set<String> wanted, Set<String> unwanted) {
        for (MessageExt message : messages) {
            String place = message.getQueueId() + "/" + message.getQueueOffset();
            // Its retry topic comes with the subscription and is no part of this.
            if (message.getTopic().equals(topic) && message.getProperty("RETRY_TOPIC") == null && !wanted.remove(place)) {
                unwanted.add(place);
            }
        }
    }

    private static Map<Integer, Long> committed(Link link, String group, String topic) throws Exception {
        JsonObject offsets = link.table(Link.GET_ALL_CONSUMER_OFFSETS).getAsJsonObject("offsetTable");
        JsonElement queues = offsets.get(topic + "@" + group);
        if (queues == null) {
            throw new IllegalStateException("group " + group + " has no offsets on " + topic);
        }
        Map<Integer, Long> committed = new HashMap<>();
        queues.getAsJsonObject().entrySet().forEach(queue -> committed.put(Integer.valueOf(queue.getKey()), queue.getValue().getAsLong()));
        return committed;
    }
}

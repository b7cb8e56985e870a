package petrel.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** What a consumer received, in the order of arrival; the message that created the topic does not count. */
final class Inbox {
    /** Time in which a message too many would show. */
    private static final long SETTLE_MILLIS = 1000;

    private final List<MessageExt> messages = new ArrayList<>();

    /** A listener that takes every message. */
    MessageListenerConcurrently listener() {
        return (batch, context) -> {
            batch.forEach(this::add);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    synchronized void add(MessageExt message) {
        if (!Fixture.isWarmUp(message)) {
            messages.add(message);
        }
    }

    synchronized List<MessageExt> messages() {
        return List.copyOf(messages);
    }

    List<String> bodies() {
        return messages().stream().map(Inbox::body).toList();
    }

    /** Waits for these bodies and for no others, each as often as given. */
    void expectExactly(Collection<String> expected) throws Exception {
        awaitCount(expected.size());
        Thread.sleep(SETTLE_MILLIS);
        Check.sameElements(expected, bodies(), "received");
    }

    void awaitCount(int count) throws Exception {
        long deadline = System.nanoTime() + Check.PATIENCE.toNanos();
        while (messages().size() < count && System.nanoTime() < deadline) {
            Thread.sleep(50);
        }
    }

    static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}

package petrel.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask for messages themselves. */
final class PullCases {
    private static final int COUNT = 20;

    private PullCases() {
    }

    static void register(Map<String, Case> cases) {
        cases.put("pull", PullCases::pull);
        cases.put("pull-lite", PullCases::lite);
    }

    /** One queue, read in steps: statuses, offsets and the committed offset. */
    private static void pull(Fixture fixture) throws Exception {
        fixture.createTopic();
        DefaultMQPullConsumer consumer = fixture.pullConsumer();
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(fixture.topic).iterator().next();
        long first = consumer.maxOffset(queue);
        List<String> bodies = Fixture.bodies("pull", COUNT);
        for (String body : bodies) {
            fixture.producer().send(fixture.message(body), queue);
        }
        Check.eventually("the max offset of the queue",
            () -> consumer.maxOffset(queue) == first + COUNT);
        Check.equal(0L, consumer.minOffset(queue), "min offset");

        List<String> read = new ArrayList<>();
        long offset = first;
        while (read.size() < COUNT) {
            PullResult result = consumer.pull(queue, "*", offset, 7);
            Check.equal(PullStatus.FOUND, result.getPullStatus(), "status at offset " + offset);
            for (MessageExt message : result.getMsgFoundList()) {
                Check.equal(offset++, message.getQueueOffset(), "queue offset");
                read.add(Inbox.body(message));
            }
            Check.equal(offset, result.getNextBeginOffset(), "next offset");
        }
        Check.equal(bodies, read, "bodies in order");
        Check.equal(PullStatus.NO_NEW_MSG, consumer.pull(queue, "*", offset, 7).getPullStatus(), "status at the end");
        PullResult beyond = consumer.pull(queue, "*", offset + 100, 7);
        Check.equal(PullStatus.OFFSET_ILLEGAL, beyond.getPullStatus(), "status beyond the end");
        Check.equal(offset, beyond.getNextBeginOffset(), "corrected offset");

        consumer.updateConsumeOffset(queue, offset - 1);
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        Check.eventually("the committed offset", () -> consumer.fetchConsumeOffset(queue, true) == first + COUNT - 1);
    }

    private static void lite(Fixture fixture) throws Exception {
        List<String> bodies = Fixture.bodies("lite", COUNT);
        fixture.createTopic();
        fixture.sendAll(bodies);
        DefaultLitePullConsumer consumer = fixture.litePullConsumer();
        consumer.setAutoCommit(false);
        consumer.subscribe(fixture.topic, "*");
        consumer.start();
        Inbox inbox = new Inbox();
        Check.eventually(COUNT + " messages polled", () -> {
            consumer.poll(200).forEach(inbox::add);
            return inbox.messages().size() >= COUNT;
        });
        inbox.expectExactly(bodies);
        consumer.commitSync();
        consumer.shutdown();
        Fixture.awaitOneWayCommit();

        DefaultLitePullConsumer next = fixture.litePullConsumer();
        next.subscribe(fixture.topic, "*");
        next.start();
        List<String> later = Fixture.bodies("lite-later", COUNT);
        fixture.sendAll(later);
        Inbox nextInbox = new Inbox();
        Check.eventually(COUNT + " later messages polled", () -> {
            next.poll(200).forEach(nextInbox::add);
            return nextInbox.messages().size() >= COUNT;
        });
        nextInbox.expectExactly(later);
    }
}

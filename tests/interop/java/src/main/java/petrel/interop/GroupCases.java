package petrel.interop;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What consumers of one group share: committed offsets and queues. */
final class GroupCases {
    private static final int COUNT = 40;

    private GroupCases() {
    }

    static void register(Map<String, Case> cases) {
        cases.put("restart", GroupCases::restart);
        cases.put("rebalance", GroupCases::rebalance);
    }

    /** A consumer commits when it is shut down; its successor gets what came later and nothing twice. */
    private static void restart(Fixture fixture) throws Exception {
        fixture.createTopic();
        for (String run : List.of("first", "second", "third")) {
            List<String> bodies = Fixture.bodies(run, COUNT);
            fixture.sendAll(bodies);
            Inbox inbox = new Inbox();
            DefaultMQPushConsumer consumer = fixture.pushConsumer();
            consumer.subscribe(fixture.topic, "*");
            consumer.registerMessageListener(inbox.listener());
            consumer.start();
            inbox.expectExactly(bodies);
            consumer.shutdown();
            Fixture.awaitOneWayCommit();
        }
    }

    /** A second consumer takes half of the queues, and gives them back when it leaves. */
    private static void rebalance(Fixture fixture) throws Exception {
        fixture.createTopic();
        Member first = Member.join(fixture);
        first.awaitQueues(4);
        Member second = Member.join(fixture);
        first.awaitQueues(2);
        second.awaitQueues(2);

        List<String> shared = Fixture.bodies("shared", COUNT);
        fixture.sendAll(shared);
        Check.eventually(COUNT + " messages for both",
            () -> first.inbox.messages().size() + second.inbox.messages().size() >= COUNT);
        List<String> together = new ArrayList<>(first.inbox.bodies());
        together.addAll(second.inbox.bodies());
        Check.sameElements(shared, together, "received together");
        Check.equal(first.queues, first.queuesReceivedFrom(), "queues of the first");
        Check.equal(second.queues, second.queuesReceivedFrom(), "queues of the second");

        int before = first.inbox.messages().size();
        second.consumer.shutdown();
        first.awaitQueues(4);
        List<String> alone = Fixture.bodies("alone", COUNT);
        fixture.sendAll(alone);
        Check.eventually("all messages for the one that stayed", () -> first.inbox.bodies().containsAll(alone));
        // An old message may come again when its queue changes hands; a new one comes once.
        List<String> fresh = first.inbox.bodies().stream().skip(before).filter(body -> !shared.contains(body)).toList();
        Check.sameElements(alone, fresh, "received after the second left");
    }

    /** A consumer of the group that remembers which queues it was given. */
    private static final class Member implements AllocateMessageQueueStrategy {
        private final AllocateMessageQueueStrategy averagely = new AllocateMessageQueueAveragely();
        private final Inbox inbox = new Inbox();
        private final DefaultMQPushConsumer consumer;
        private volatile Set<Integer> queues = Set.of();

        private Member(DefaultMQPushConsumer consumer) {
            this.consumer = consumer;
        }

        static Member join(Fixture fixture) throws Exception {
            Member member = new Member(fixture.pushConsumer());
            member.consumer.setAllocateMessageQueueStrategy(member);
            member.consumer.subscribe(fixture.topic, "*");
            member.consumer.registerMessageListener(member.inbox.listener());
            member.consumer.start();
            return member;
        }

        @Override
        public List<MessageQueue> allocate(
            String group, String clientId, List<MessageQueue> all, List<String> clientIds) {
            List<MessageQueue> own = averagely.allocate(group, clientId, all, clientIds);
            if (!all.get(0).getTopic().startsWith("%RETRY%")) {
                queues = own.stream().map(MessageQueue::getQueueId).collect(Collectors.toSet());
            }
            return own;
        }

        @Override
        public String getName() {
            return averagely.getName();
        }

        void awaitQueues(int count) throws Exception {
            Check.eventually(count + " queues for a member", () -> queues.size() == count);
            // The allocation is known a moment before the queues are taken or given up.
            Thread.sleep(1000);
        }

        Set<Integer> queuesReceivedFrom() {
            return inbox.messages().stream().map(MessageExt::getQueueId)
                .collect(Collectors.toCollection(HashSet::new));
        }
    }
}

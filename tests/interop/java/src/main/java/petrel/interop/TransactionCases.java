package petrel.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions: decided at once, when the broker asks, by another producer of the group. */
final class TransactionCases {
    private static final int COUNT = 12;

    private TransactionCases() {
    }

    static void register(Map<String, Case> cases) {
        cases.put("transaction", TransactionCases::decidedAtOnce);
        cases.put("transaction-check", TransactionCases::decidedWhenAsked);
        cases.put("transaction-restart", TransactionCases::decidedByTheNext);
    }

    /** Decides by the body; counts by body how often it was asked. */
    private static final class Listener implements TransactionListener {
        private final LocalTransactionState first;
        private final Map<String, AtomicInteger> asked = new ConcurrentHashMap<>();

        Listener(LocalTransactionState first) {
            this.first = first;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return first != null ? first : decision(new String(message.getBody()));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = Inbox.body(message);
            int times = asked.computeIfAbsent(body, any -> new AtomicInteger()).incrementAndGet();
            // One of them knows only at the second time.
            return body.endsWith("-0") && times == 1 ? LocalTransactionState.UNKNOW : decision(body);
        }

        static LocalTransactionState decision(String body) {
            return body.startsWith("commit") ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    private static void decidedAtOnce(Fixture fixture) throws Exception {
        Inbox inbox = consume(fixture);
        TransactionMQProducer producer = fixture.transactionProducer(new Listener(null));
        List<String> committed = Fixture.bodies("commit", COUNT);
        sendAll(fixture, producer, committed, LocalTransactionState.COMMIT_MESSAGE);
        sendAll(fixture, producer, Fixture.bodies("rollback", COUNT), LocalTransactionState.ROLLBACK_MESSAGE);
        inbox.expectExactly(committed);
        for (MessageExt message : inbox.messages()) {
            Check.equal("true", message.getProperty("TRAN_MSG"), "TRAN_MSG");
            Check.equal(producer.getProducerGroup(), message.getProperty("PGROUP"), "PGROUP");
            Check.equal(message.getProperty("UNIQ_KEY"), message.getTransactionId(), "transaction id");
            Check.that(message.getPreparedTransactionOffset() > 0, "the place of the half message");
        }
    }

    private static void decidedWhenAsked(Fixture fixture) throws Exception {
        Inbox inbox = consume(fixture);
        Listener listener = new Listener(LocalTransactionState.UNKNOW);
        TransactionMQProducer producer = fixture.transactionProducer(listener);
        List<String> committed = Fixture.bodies("commit", COUNT);
        List<String> rolledBack = Fixture.bodies("rollback", COUNT);
        sendAll(fixture, producer, committed, LocalTransactionState.UNKNOW);
        sendAll(fixture, producer, rolledBack, LocalTransactionState.UNKNOW);
        List<String> all = new ArrayList<>(committed);
        all.addAll(rolledBack);
        Check.eventually("everybody asked, the undecided twice", () -> listener.asked.keySet().containsAll(all)
            && listener.asked.get("commit-0").get() >= 2 && listener.asked.get("rollback-0").get() >= 2);
        inbox.expectExactly(committed);
        all.forEach(body -> {
            int times = listener.asked.get(body).get();
            Check.equal(body.endsWith("-0") ? 2 : 1, times, "questions about " + body);
        });
    }

    private static void decidedByTheNext(Fixture fixture) throws Exception {
        Inbox inbox = consume(fixture);
        TransactionMQProducer first = fixture.transactionProducer(new Listener(LocalTransactionState.UNKNOW));
        List<String> committed = Fixture.bodies("commit", COUNT);
        sendAll(fixture, first, committed, LocalTransactionState.UNKNOW);
        sendAll(fixture, first, Fixture.bodies("rollback", COUNT), LocalTransactionState.UNKNOW);
        first.shutdown();
        TransactionMQProducer second = fixture.transactionProducer(new Listener(null));
        sendAll(fixture, second, List.of("commit-more"), LocalTransactionState.COMMIT_MESSAGE);
        List<String> expected = new ArrayList<>(committed);
        expected.add("commit-more");
        inbox.expectExactly(expected);
    }

    private static Inbox consume(Fixture fixture) throws Exception {
        fixture.createTopic();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.subscribe(fixture.topic, "*");
        consumer.registerMessageListener(inbox.listener());
        consumer.start();
        return inbox;
    }

    private static void sendAll(
        Fixture fixture, TransactionMQProducer producer, List<String> bodies, LocalTransactionState expected) throws Exception {
        for (String body : bodies) {
            TransactionSendResult result = producer.sendMessageInTransaction(fixture.message(body), null);
            Check.equal(SendStatus.SEND_OK, result.getSendStatus(), "status of " + body);
            Check.equal(expected, result.getLocalTransactionState(), "state of " + body);
        }
    }
}

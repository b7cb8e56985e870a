package main

import (
	"context"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const transactionCount = 12

// Transactions: decided at once, when the broker asks, by another producer of the group.
var transactionCases = []interopCase{
	{"transaction", transactionAtOnce},
	{"transaction-check", transactionWhenAsked},
	{"transaction-restart", transactionByTheNext},
}

// decider decides by the body; it counts by body how often it was asked.
type decider struct {
	undecided bool
	mutex     sync.Mutex
	asked     map[string]int
}

func (d *decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	if d.undecided {
		return primitive.UnkonwnState
	}
	return decision(string(message.Body))
}

func (d *decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	body := string(message.Body)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.asked == nil {
		d.asked = map[string]int{}
	}
	d.asked[body]++
	// One of them knows only at the second time.
	if strings.HasSuffix(body, "-0") && d.asked[body] == 1 {
		return primitive.UnkonwnState
	}
	return decision(body)
}

func (d *decider) times(body string) int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.asked[body]
}

func decision(body string) primitive.LocalTransactionState {
	if strings.HasPrefix(body, "commit") {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func transactionAtOnce(f *fixture) {
	box := consumeTransactions(f)
	sender := f.transactionProducer(&decider{})
	committed := numbered("commit", transactionCount)
	sendInTransaction(f, sender, committed, primitive.CommitMessageState)
	sendInTransaction(f, sender, numbered("rollback", transactionCount), primitive.RollbackMessageState)
	box.expectExactly(committed)
	for _, message := range box.received() {
		equal("true", message.GetProperty(primitive.PropertyTransactionPrepared), "TRAN_MSG")
		equal(f.transactionGroup(), message.GetProperty(primitive.PropertyProducerGroup), "PGROUP")
	}
}

func transactionWhenAsked(f *fixture) {
	box := consumeTransactions(f)
	listener := &decider{undecided: true}
	sender := f.transactionProducer(listener)
	committed, rolledBack := numbered("commit", transactionCount), numbered("rollback", transactionCount)
	sendInTransaction(f, sender, committed, primitive.UnkonwnState)
	sendInTransaction(f, sender, rolledBack, primitive.UnkonwnState)
	all := append(append([]string{}, committed...), rolledBack...)
	expected := func(body string) int {
		if strings.HasSuffix(body, "-0") {
			return 2
		}
		return 1
	}
	eventually("everybody asked, the undecided twice", func() bool {
		for _, body := range all {
			if listener.times(body) < expected(body) {
				return false
			}
		}
		return true
	})
	box.expectExactly(committed)
	for _, body := range all {
		equal(expected(body), listener.times(body), "questions about "+body)
	}
}

func transactionByTheNext(f *fixture) {
	box := consumeTransactions(f)
	first := f.transactionProducer(&decider{undecided: true})
	committed := numbered("commit", transactionCount)
	sendInTransaction(f, first, committed, primitive.UnkonwnState)
	sendInTransaction(f, first, numbered("rollback", transactionCount), primitive.UnkonwnState)
	must(first.Shutdown())
	second := f.transactionProducer(&decider{})
	sendInTransaction(f, second, []string{"commit-more"}, primitive.CommitMessageState)
	box.expectExactly(append(committed, "commit-more"))
}

func consumeTransactions(f *fixture) *inbox {
	f.createTopic()
	box := new(inbox)
	f.push(everything, box.take)
	return box
}

func (f *fixture) transactionGroup() string { return "interop-transactions-" + f.unique }

func (f *fixture) transactionProducer(listener primitive.TransactionListener) rocketmq.TransactionProducer {
	created, err := rocketmq.NewTransactionProducer(listener,
		producer.WithNsResolver(f.resolver()),
		producer.WithGroupName(f.transactionGroup()),
		producer.WithInstanceName(f.nextInstance()),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	must(err)
	must(created.Start())
	f.closers = append(f.closers, func() { _ = created.Shutdown() })
	return created
}

func sendInTransaction(
	f *fixture, sender rocketmq.TransactionProducer, bodies []string, expected primitive.LocalTransactionState,
) {
	for _, body := range bodies {
		result, err := sender.SendMessageInTransaction(context.Background(), f.message(body))
		must(err)
		equal(primitive.SendOK, result.Status, "status of "+body)
		equal(expected, result.State, "state of "+body)
	}
}

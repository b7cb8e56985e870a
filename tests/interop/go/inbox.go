package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// settle is the time in which a message too many would show.
const settle = time.Second

// inbox holds what a consumer received, in the order of arrival; the message that created the topic does not count.
type inbox struct {
	mutex    sync.Mutex
	messages []*primitive.MessageExt
}

// take is a listener that accepts every message.
func (i *inbox) take(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	i.add(messages...)
	return consumer.ConsumeSuccess, nil
}

func (i *inbox) add(messages ...*primitive.MessageExt) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	for _, message := range messages {
		if string(message.Body) != warmUp {
			i.messages = append(i.messages, message)
		}
	}
}

func (i *inbox) received() []*primitive.MessageExt {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return slices.Clone(i.messages)
}

func (i *inbox) bodies() []string { return bodiesOf(i.received()) }

// byQueue orders by queue and offset.
func (i *inbox) byQueue() []*primitive.MessageExt {
	messages := i.received()
	slices.SortStableFunc(messages, func(a, b *primitive.MessageExt) int {
		return cmp.Or(cmp.Compare(a.Queue.QueueId, b.Queue.QueueId), cmp.Compare(a.QueueOffset, b.QueueOffset))
	})
	return messages
}

// expectExactly waits for these bodies and for no others, each as often as given.
func (i *inbox) expectExactly(expected []string) {
	i.awaitCount(len(expected))
	time.Sleep(settle)
	sameElements(expected, i.bodies(), "received")
}

// awaitCount returns after `patience` with fewer; the caller compares.
func (i *inbox) awaitCount(count int) {
	for deadline := time.Now().Add(patience); len(i.received()) < count && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
}

func bodiesOf(messages []*primitive.MessageExt) []string {
	bodies := make([]string, len(messages))
	for index, message := range messages {
		bodies[index] = string(message.Body)
	}
	return bodies
}

// bodiesByQueue keeps the order in which they are given.
func bodiesByQueue(messages []*primitive.MessageExt) map[int][]string {
	queues := map[int][]string{}
	for _, message := range messages {
		queues[message.Queue.QueueId] = append(queues[message.Queue.QueueId], string(message.Body))
	}
	return queues
}

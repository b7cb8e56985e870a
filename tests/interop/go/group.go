package main

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const groupCount = 40

// What consumers of one group share: committed offsets and queues.
var groupCases = []interopCase{
	{"restart", restart},
	{"rebalance", rebalance},
}

// restart: a consumer commits when it is shut down; its successor gets what came later and nothing twice.
func restart(f *fixture) {
	f.createTopic()
	for _, run := range []string{"first", "second", "third"} {
		bodies := numbered(run, groupCount)
		f.sendAll(bodies)
		var box inbox
		running := f.push(everything, box.take)
		box.expectExactly(bodies)
		must(running.Shutdown())
		awaitOneWayCommit()
	}
}

// rebalance: a second consumer takes half of the queues, and gives them back when it leaves.
func rebalance(f *fixture) {
	f.createTopic()
	first := join(f)
	first.awaitQueues(4)
	second := join(f)
	first.awaitQueues(2)
	second.awaitQueues(2)

	shared := numbered("shared", groupCount)
	f.sendAll(shared)
	eventually("all messages for both", func() bool {
		return len(first.box.received())+len(second.box.received()) >= groupCount
	})
	time.Sleep(settle)
	sameElements(shared, append(first.box.bodies(), second.box.bodies()...), "received together")
	equal(*first.queues.Load(), first.queuesReceivedFrom(), "queues of the first")
	equal(*second.queues.Load(), second.queuesReceivedFrom(), "queues of the second")

	before := len(first.box.received())
	must(second.consumer.Shutdown())
	first.awaitQueues(4)
	alone := numbered("alone", groupCount)
	f.sendAll(alone)
	eventually("all messages for the one that stayed", func() bool {
		return len(without(alone, first.box.bodies())) == 0
	})
	// An old message may come again when its queue changes hands; a new one comes once.
	fresh := slices.DeleteFunc(first.box.bodies()[before:], func(body string) bool { return slices.Contains(shared, body) })
	sameElements(alone, fresh, "received after the second left")
}

// member of the group; remembers which queues it was given.
type member struct {
	consumer rocketmq.PushConsumer
	box      inbox
	queues   atomic.Pointer[[]int]
}

func join(f *fixture) *member {
	joined := &member{}
	joined.queues.Store(&[]int{})
	joined.consumer = f.push(everything, joined.box.take, consumer.WithStrategy(joined.allocate))
	return joined
}

func (m *member) allocate(
	group, clientID string, all []*primitive.MessageQueue, clientIDs []string,
) []*primitive.MessageQueue {
	own := consumer.AllocateByAveragely(group, clientID, all, clientIDs)
	if !strings.HasPrefix(all[0].Topic, "%RETRY%") {
		ids := []int{}
		for _, queue := range own {
			ids = append(ids, queue.QueueId)
		}
		slices.Sort(ids)
		m.queues.Store(&ids)
	}
	return own
}

func (m *member) awaitQueues(count int) {
	eventually("the queues of a member", func() bool { return len(*m.queues.Load()) == count })
	// The allocation is known a moment before the queues are taken or given up.
	time.Sleep(time.Second)
}

func (m *member) queuesReceivedFrom() []int {
	ids := []int{}
	for _, message := range m.box.byQueue() {
		ids = append(ids, message.Queue.QueueId)
	}
	return slices.Compact(ids)
}

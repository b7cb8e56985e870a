package main

import (
	"context"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const pullCount = 20

// Consumers that ask for messages themselves.
var pullCases = []interopCase{
	{"pull", pull},
	{"pull-poll", poll},
}

// pull reads one queue in steps, then beyond its end.
func pull(f *fixture) {
	f.createTopic()
	puller := f.startPull()
	queues, err := puller.GetTopicRouteInfo(f.topic)
	must(err)
	queue := queues[0]
	bodies := numbered("pull", pullCount)
	sender := f.newProducer(producer.WithQueueSelector(producer.NewManualQueueSelector()))
	var first int64
	for index, body := range bodies {
		message := f.message(body)
		message.Queue = queue
		result, err := sender.SendSync(context.Background(), message)
		must(err)
		if index == 0 {
			first = result.QueueOffset
		}
	}

	var read []string
	offset := first
	for len(read) < pullCount {
		result, err := puller.PullFrom(context.Background(), queue, offset, 7)
		must(err)
		equal(primitive.PullFound, result.Status, "status")
		for _, message := range result.GetMessageExts() {
			equal(offset, message.QueueOffset, "queue offset")
			read = append(read, string(message.Body))
			offset++
		}
		equal(offset, result.NextBeginOffset, "next offset")
		equal(int64(0), result.MinOffset, "min offset")
	}
	equal(bodies, read, "bodies in order")
	beyond, err := puller.PullFrom(context.Background(), queue, offset+100, 7)
	must(err)
	equal(primitive.PullOffsetIllegal, beyond.Status, "status beyond the end")
	equal(offset, beyond.NextBeginOffset, "corrected offset")
}

// poll takes what a subscription brings and acknowledges it; the next consumer gets what came later.
func poll(f *fixture) {
	f.createTopic()
	for _, run := range []string{"first", "second"} {
		bodies := numbered(run, pullCount)
		f.sendAll(bodies)
		puller := f.startPull()
		var box inbox
		eventually("all messages polled", func() bool {
			request, err := puller.Poll(context.Background(), time.Second)
			if err == nil {
				box.add(request.GetMsgList()...)
				puller.ACK(context.Background(), request, consumer.ConsumeSuccess)
			}
			return len(box.received()) >= pullCount
		})
		sameElements(bodies, box.bodies(), "polled")
		must(puller.PersistOffset(context.Background(), f.topic))
		must(puller.Shutdown())
		awaitOneWayCommit()
	}
}

func (f *fixture) startPull() rocketmq.PullConsumer {
	created, err := rocketmq.NewPullConsumer(f.consumerOptions(f.group)...)
	must(err)
	must(created.Subscribe(f.topic, everything))
	must(created.Start())
	f.closers = append(f.closers, func() { _ = created.Shutdown() })
	return created
}

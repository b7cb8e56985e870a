package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const sendCount = 40

// The ways to send; what arrived is read back.
var sendCases = []interopCase{
	{"send-sync", sendSync},
	{"send-async", sendAsync},
	{"send-oneway", sendOneway},
	{"send-batch", sendBatch},
	{"send-ordered", sendOrdered},
}

func sendSync(f *fixture) {
	results := map[string]*primitive.SendResult{}
	for _, body := range numbered("sync", sendCount) {
		results[body] = f.send(f.message(body))
	}
	checkReceipts(f, results)
}

func sendAsync(f *fixture) {
	f.createTopic()
	var mutex sync.Mutex
	var answered sync.WaitGroup
	results, errors := map[string]*primitive.SendResult{}, []error{}
	for _, body := range numbered("async", sendCount) {
		answered.Add(1)
		must(f.producer().SendAsync(context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				defer answered.Done()
				mutex.Lock()
				defer mutex.Unlock()
				if err != nil {
					errors = append(errors, err)
				} else {
					results[body] = result
				}
			}, f.message(body)))
	}
	answered.Wait()
	equal([]error{}, errors, "errors")
	checkReceipts(f, results)
}

func sendOneway(f *fixture) {
	f.createTopic()
	bodies := numbered("oneway", sendCount)
	for _, body := range bodies {
		must(f.producer().SendOneWay(context.Background(), f.message(body)))
	}
	f.readAll(f.topic, sendCount).expectExactly(bodies)
}

func sendBatch(f *fixture) {
	f.createTopic()
	bodies := numbered("batch", sendCount)
	messages := make([]*primitive.Message, sendCount)
	for index, body := range bodies {
		messages[index] = f.message(body).WithTag("tag").WithKeys([]string{"key-" + body})
	}
	result, err := f.producer().SendSync(context.Background(), messages...)
	must(err)
	equal(primitive.SendOK, result.Status, "status")

	read := f.readAll(f.topic, sendCount)
	read.expectExactly(bodies)
	for index, message := range read.byQueue() {
		equal(bodies[index], string(message.Body), "body in order")
		equal(result.MessageQueue.QueueId, message.Queue.QueueId, "queue")
		equal(result.QueueOffset+int64(index), message.QueueOffset, "queue offset")
		equal("key-"+bodies[index], message.GetKeys(), "keys")
	}
}

func sendOrdered(f *fixture) {
	f.createTopic()
	sent := sendByShardingKey(f)
	if len(sent) < 2 {
		failure("all sharding keys went to one queue: %v", sent)
	}
	read := f.readAll(f.topic, sendCount)
	read.awaitCount(sendCount)
	equal(sent, bodiesByQueue(read.byQueue()), "bodies by queue")
}

// sendByShardingKey sends ten steps of four orders; each order has one queue.
func sendByShardingKey(f *fixture) (bodiesByQueue map[int][]string) {
	bodiesByQueue = map[int][]string{}
	queueOf := map[int]int{}
	for step := range 10 {
		for order := range 4 {
			body := fmt.Sprintf("order-%d-%d", order, step)
			result := f.send(f.message(body).WithShardingKey(fmt.Sprintf("sharding-key-%d", order)))
			queue := result.MessageQueue.QueueId
			if known, seen := queueOf[order]; seen {
				equal(known, queue, "queue of one sharding key")
			}
			queueOf[order] = queue
			bodiesByQueue[queue] = append(bodiesByQueue[queue], body)
		}
	}
	return bodiesByQueue
}

// checkReceipts: each receipt names the place and the id of exactly the message it was given for.
func checkReceipts(f *fixture, results map[string]*primitive.SendResult) {
	bodies := []string{}
	for body := range results {
		bodies = append(bodies, body)
	}
	equal(sendCount, len(bodies), "receipts")
	read := f.readAll(f.topic, sendCount)
	read.expectExactly(bodies)
	for _, message := range read.received() {
		result := results[string(message.Body)]
		equal(primitive.SendOK, result.Status, "status")
		equal(result.MsgID, message.MsgId, "message id")
		equal(result.MessageQueue.QueueId, message.Queue.QueueId, "queue")
		equal(result.QueueOffset, message.QueueOffset, "queue offset")
	}
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const pushCount = 60

// Push consumption: concurrent, orderly, broadcast, by tag.
var pushCases = []interopCase{
	{"push-concurrent", pushConcurrent},
	{"push-orderly", pushOrderly},
	{"broadcast", broadcast},
	{"tags", tags},
}

func pushConcurrent(f *fixture) {
	f.createTopic()
	var box inbox
	f.push(everything, box.take)
	bodies := numbered("concurrent", pushCount)
	f.sendAll(bodies)
	box.expectExactly(bodies)
}

// pushOrderly puts some messages off once; nothing of their queue may overtake them.
func pushOrderly(f *fixture) {
	f.createTopic()
	var box inbox
	var suspended sync.Map
	f.push(everything, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		body := string(messages[0].Body)
		if _, seen := suspended.LoadOrStore(body, true); strings.HasSuffix(body, "-5") && !seen {
			orderly, _ := primitive.GetOrderlyCtx(ctx)
			orderly.SuspendCurrentQueueTimeMillis = 200
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return box.take(ctx, messages...)
	}, consumer.WithConsumerOrder(true))

	sent := sendByShardingKey(f)
	var bodies []string
	for _, queue := range sent {
		bodies = append(bodies, queue...)
	}
	box.expectExactly(bodies)
	equal(sent, bodiesByQueue(box.received()), "order of each queue")
}

func broadcast(f *fixture) {
	f.createTopic()
	boxes := [2]inbox{}
	for index := range boxes {
		f.push(everything, boxes[index].take, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	bodies := numbered("broadcast", pushCount)
	f.sendAll(bodies)
	for index := range boxes {
		boxes[index].expectExactly(bodies)
	}
}

// tags: AaAa and BBBB have the same hash code, by which the broker filters.
func tags(f *fixture) {
	f.createTopic()
	var box inbox
	f.push(consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA || AaAa"}, box.take)
	wantedTags := []string{"TagA", "AaAa"}
	var wanted []string
	for index := range 10 {
		for _, tag := range []string{"TagA", "TagB", "AaAa", "BBBB"} {
			body := fmt.Sprintf("%s-%d", tag, index)
			f.send(f.message(body).WithTag(tag))
			if slices.Contains(wantedTags, tag) {
				wanted = append(wanted, body)
			}
		}
		f.send(f.message(fmt.Sprintf("untagged-%d", index)))
	}
	box.expectExactly(wanted)
	for _, message := range box.received() {
		if !strings.HasPrefix(string(message.Body), message.GetTags()+"-") {
			failure("tag %q of %s", message.GetTags(), message.Body)
		}
	}
}

package main

import (
	"context"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Messages that come later: delay levels, retries, the dead letter queue.
var retryCases = []interopCase{
	{"delay", delay},
	{"retry-dlq", retryThenDeadLetter},
}

// delay: level 1 is one second, level 2 five.
func delay(f *fixture) {
	f.createTopic()
	var box inbox
	var arrivals sync.Map
	f.push(everything, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			arrivals.LoadOrStore(string(message.Body), time.Now())
		}
		return box.take(ctx, messages...)
	})
	sentAt := time.Now()
	f.send(f.message("level-2").WithDelayTimeLevel(2))
	f.send(f.message("level-1").WithDelayTimeLevel(1))
	f.send(f.message("now"))
	box.expectExactly([]string{"now", "level-1", "level-2"})
	for body, least := range map[string]time.Duration{"level-1": time.Second, "level-2": 5 * time.Second} {
		arrival, _ := arrivals.Load(body)
		if after := arrival.(time.Time).Sub(sentAt); after < least {
			failure("%s came after %v, not before %v expected", body, after, least)
		}
	}
}

// retryThenDeadLetter allows two retries one second apart: "once" succeeds at the second delivery, "never" ends in
// the dead letter queue.
func retryThenDeadLetter(f *fixture) {
	f.createTopic()
	f.joinOnce()
	var box inbox
	f.push(everything, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		message := messages[0]
		box.add(message)
		concurrently, _ := primitive.GetConcurrentlyCtx(ctx)
		concurrently.DelayLevelWhenNextConsume = 1
		body := string(message.Body)
		if body == "never" || body == "once" && message.ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithMaxReconsumeTimes(2))
	f.sendAll([]string{"good", "once", "never"})

	dead := f.readAll("%DLQ%"+f.group, 1)
	dead.expectExactly([]string{"never"})
	equal(f.topic, dead.received()[0].GetProperty(primitive.PropertyRetryTopic), "RETRY_TOPIC")

	box.expectExactly([]string{"good", "once", "once", "never", "never", "never"})
	times := map[string][]int32{}
	for _, message := range box.received() {
		times[string(message.Body)] = append(times[string(message.Body)], message.ReconsumeTimes)
	}
	equal(map[string][]int32{"good": {0}, "once": {0, 1}, "never": {0, 1, 2}}, times, "reconsume times")
}

// joinOnce makes the group's retry topic known before the consumer under test starts; found later, it would be
// consumed only after the client's next route refresh, 30 s on.
func (f *fixture) joinOnce() {
	must(f.push(everything, new(inbox).take).Shutdown())
	f.awaitRoute("%RETRY%" + f.group)
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Messages chosen by SQL92 expressions over their properties.
var sqlCases = []interopCase{
	{"sql", sqlPush},
	{"sql-null", sqlNull},
	{"sql-wrong", sqlWrong},
}

func bySQL(expression string) consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}
}

// sqlPush: what comes after the consumer has begun to wait wakes it as well.
func sqlPush(f *fixture) {
	f.createTopic()
	var box inbox
	f.push(bySQL("(TAGS IN ('TagA', 'TagB') AND weight BETWEEN 3 AND 6 AND region <> 'us') OR note CONTAINS 'it''s'"), box.take)
	var wanted []string
	for _, round := range []string{"early", "late"} {
		for weight := range 10 {
			for _, region := range []string{"eu", "us"} {
				for _, tag := range []string{"TagA", "TagC"} {
					body := fmt.Sprintf("%s-%s-%s-%d", round, tag, region, weight)
					message := f.message(body).WithTag(tag)
					message.WithProperty("weight", fmt.Sprint(weight))
					message.WithProperty("region", region)
					f.send(message)
					if tag == "TagA" && region == "eu" && weight >= 3 && weight <= 6 {
						wanted = append(wanted, body)
					}
				}
			}
		}
		noted := f.message("noted-" + round)
		noted.WithProperty("note", "now it's noted")
		f.send(noted)
		wanted = append(wanted, "noted-"+round)
		box.expectExactly(wanted)
	}
}

// sqlNull: an absent property is neither equal nor unequal; one that is no number fails the comparison.
func sqlNull(f *fixture) {
	f.createTopic()
	sender := f.newProducer(producer.WithQueueSelector(producer.NewManualQueueSelector()))
	queue := f.firstQueue()
	var first int64
	for index, weight := range []string{"5", "", "much", "7"} {
		message := f.message("weight-" + weight)
		if weight != "" {
			message.WithProperty("weight", weight)
		}
		message.Queue = queue
		result, err := sender.SendSync(context.Background(), message)
		must(err)
		if index == 0 {
			first = result.QueueOffset
		}
	}
	for expression, expected := range map[string][]string{
		"weight = 5":                {"weight-5"},
		"weight <> 5":               {"weight-7"},
		"5 <> weight":               {"weight-", "weight-7"},
		"weight IS NULL":            {"weight-"},
		"weight IS NOT NULL":        {"weight-5", "weight-much", "weight-7"},
		"weight > 5 OR TRUE":        {"weight-5", "weight-", "weight-7"},
		"weight NOT CONTAINS 'u'":   {"weight-5", "weight-7"},
		"NOT (weight CONTAINS 'u')": {"weight-5", "weight-", "weight-7"},
	} {
		puller := f.startPullBy(bySQL(expression))
		// The first pull may come before the last message is visible.
		eventually(fmt.Sprintf("%v by %s", expected, expression), func() bool {
			result, err := puller.PullFrom(context.Background(), queue, first, 32)
			must(err)
			return result.Status == primitive.PullFound && slices.Equal(expected, bodiesOf(result.GetMessageExts()))
		})
	}
	puller := f.startPullBy(bySQL("weight > 100"))
	nothing, err := puller.PullFrom(context.Background(), queue, first, 32)
	must(err)
	equal(primitive.PullNoMsgMatched, nothing.Status, "status without a match")
	equal(first+4, nothing.NextBeginOffset, "next offset without a match")
}

// sqlWrong: the client does not ask at its start; its pulls are refused, and the refusal says where the expression is wrong.
func sqlWrong(f *fixture) {
	f.createTopic()
	puller := f.startPullBy(bySQL("number >= 10 AND"))
	result, err := puller.PullFrom(context.Background(), f.firstQueue(), 0, 32)
	if javaBroker {
		return
	}
	if err == nil {
		failure("pulled by a wrong expression: %v", result.Status)
	}
	for _, part := range []string{"23", "line 1, column 17"} {
		if !strings.Contains(err.Error(), part) {
			failure("%s is not in: %v", part, err)
		}
	}
}

func (f *fixture) firstQueue() *primitive.MessageQueue {
	queues, err := f.startPull().GetTopicRouteInfo(f.topic)
	must(err)
	return queues[0]
}

func (f *fixture) startPullBy(selector consumer.MessageSelector) rocketmq.PullConsumer {
	created, err := rocketmq.NewPullConsumer(f.consumerOptions("interop-reader-" + f.nextInstance())...)
	must(err)
	must(created.Subscribe(f.topic, selector))
	must(created.Start())
	f.closers = append(f.closers, func() { _ = created.Shutdown() })
	return created
}

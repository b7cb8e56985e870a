package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const warmUp = "warm-up"

// javaBroker: expect what the Java broker does differently.
var javaBroker = os.Getenv("INTEROP_JAVA_BROKER") != ""

var everything = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

// fixture has the names and clients of one case and closes the clients it handed out.
type fixture struct {
	topic     string
	group     string
	namesrv   string
	unique    string
	instances int
	sender    rocketmq.Producer
	closers   []func()
}

func newFixture(namesrv, name string) *fixture {
	unique := name + "-" + rand.Text()[:8]
	return &fixture{
		topic: "interop-" + unique, group: "interop-group-" + unique, namesrv: namesrv, unique: unique,
	}
}

func (f *fixture) close() {
	for index := len(f.closers) - 1; index >= 0; index-- {
		f.closers[index]()
	}
}

func (f *fixture) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{f.namesrv})
}

func (f *fixture) nextInstance() string {
	f.instances++
	return fmt.Sprintf("%s-%d", f.unique, f.instances)
}

// producer is started, the same at each call, and keeps messages of one sharding key in one queue.
func (f *fixture) producer() rocketmq.Producer {
	if f.sender == nil {
		f.sender = f.newProducer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	return f.sender
}

func (f *fixture) newProducer(options ...producer.Option) rocketmq.Producer {
	created, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNsResolver(f.resolver()),
		producer.WithGroupName("interop-producer-" + f.unique),
		producer.WithInstanceName(f.nextInstance()),
		producer.WithSendMsgTimeout(10 * time.Second),
	}, options...)...)
	must(err)
	must(created.Start())
	f.closers = append(f.closers, func() { _ = created.Shutdown() })
	return created
}

func (f *fixture) consumerOptions(group string, options ...consumer.Option) []consumer.Option {
	return append([]consumer.Option{
		consumer.WithNsResolver(f.resolver()),
		consumer.WithGroupName(group),
		consumer.WithInstance(f.nextInstance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// push starts a push consumer of the case's group.
func (f *fixture) push(selector consumer.MessageSelector, receive listener, options ...consumer.Option) rocketmq.PushConsumer {
	return f.pushFrom(f.topic, f.group, selector, receive, options...)
}

func (f *fixture) pushFrom(
	topic, group string, selector consumer.MessageSelector, receive listener, options ...consumer.Option,
) rocketmq.PushConsumer {
	created, err := rocketmq.NewPushConsumer(f.consumerOptions(group, options...)...)
	must(err)
	must(created.Subscribe(topic, selector, receive))
	must(created.Start())
	f.closers = append(f.closers, func() { _ = created.Shutdown() })
	return created
}

// readAll consumes a topic from its beginning with a group of its own until `count` messages came.
func (f *fixture) readAll(topic string, count int) *inbox {
	f.awaitRoute(topic)
	var read inbox
	f.pushFrom(topic, "interop-reader-"+f.unique, everything, read.take)
	read.awaitCount(count)
	return &read
}

// createTopic sends a first message, which the inbox leaves out.
func (f *fixture) createTopic() {
	f.send(f.message(warmUp))
	f.awaitRoute(f.topic)
}

// awaitRoute: a consumer does not start before the route of its topic is there.
func (f *fixture) awaitRoute(topic string) {
	asking, err := admin.NewAdmin(admin.WithResolver(f.resolver()))
	must(err)
	defer asking.Close()
	eventually("a route of "+topic, func() bool {
		queues, err := asking.FetchPublishMessageQueues(context.Background(), topic)
		return err == nil && len(queues) > 0
	})
}

// awaitOneWayCommit: consumers commit one-way as they shut down, so the commit may still be on its way.
func awaitOneWayCommit() {
	time.Sleep(500 * time.Millisecond)
}

func (f *fixture) message(body string) *primitive.Message {
	return primitive.NewMessage(f.topic, []byte(body))
}

func (f *fixture) send(message *primitive.Message) *primitive.SendResult {
	result, err := f.producer().SendSync(context.Background(), message)
	must(err)
	return result
}

func (f *fixture) sendAll(bodies []string) {
	for _, body := range bodies {
		f.send(f.message(body))
	}
}

// numbered returns prefix-0 to prefix-(count - 1).
func numbered(prefix string, count int) []string {
	bodies := make([]string, count)
	for index := range bodies {
		bodies[index] = fmt.Sprintf("%s-%d", prefix, index)
	}
	return bodies
}

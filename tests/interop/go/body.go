package main

import (
	"bytes"
	"context"
	"math/rand"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const bodyLimit = 4_194_304

// What bodies, keys and tags may hold, and how large a body may be.
var bodyCases = []interopCase{
	{"non-ascii", nonASCII},
	{"compressed", compressed},
	{"body-4mib", largestBody},
	{"body-too-large", tooLargeBody},
}

// nonASCII takes every tag: the client hashes a subscribed tag by its UTF-8 bytes, the broker the tag of a message by
// its UTF-16 units, so that a subscription to a tag that is not ASCII never matches.
func nonASCII(f *fixture) {
	f.createTopic()
	const tag, key, body = "标签-étiquette", "ключ-🔑", "こんにちは, Grüße, 🦀"
	var box inbox
	f.push(everything, box.take)
	message := f.message(body).WithTag(tag).WithKeys([]string{key})
	message.WithProperty("eigenschaft-ß", "värde-值")
	f.send(message)

	box.expectExactly([]string{body})
	received := box.received()[0]
	equal(tag, received.GetTags(), "tag")
	equal(key, received.GetKeys(), "key")
	equal("värde-值", received.GetProperty("eigenschaft-ß"), "user property")
}

// compressed: the client compresses bodies over 4 KiB; the receiver sees them as they were.
func compressed(f *fixture) {
	body := strings.Repeat("compressible ", 10_000)
	f.send(f.message(body))
	received := f.readAll(f.topic, 1).received()
	equal(1, len(received), "messages")
	if string(received[0].Body) != body {
		failure("another body than was sent")
	}
	if int(received[0].StoreSize) > len(body)/2 {
		failure("stored size %d of a body of %d bytes", received[0].StoreSize, len(body))
	}
}

func largestBody(f *fixture) {
	body := incompressible(bodyLimit)
	_, err := f.largeProducer().SendSync(context.Background(), primitive.NewMessage(f.topic, body))
	must(err)
	received := f.readAll(f.topic, 1).received()
	equal(1, len(received), "messages")
	if !bytes.Equal(body, received[0].Body) {
		failure("another body than was sent")
	}
}

// tooLargeBody: the refusal names the limit and the actual size; the Java broker's text has no size.
func tooLargeBody(f *fixture) {
	f.createTopic()
	_, err := f.largeProducer().SendSync(
		context.Background(), primitive.NewMessage(f.topic, incompressible(bodyLimit+1)))
	if err == nil {
		failure("a body of %d bytes was accepted", bodyLimit+1)
	}
	text := err.Error()
	if !strings.Contains(text, "4194304") {
		failure("no limit in: %s", text)
	}
	if !javaBroker && !strings.Contains(text, "4194305") {
		failure("no actual size in: %s", text)
	}
	f.sendAll([]string{"after"})
	f.readAll(f.topic, 1).expectExactly([]string{"after"})
}

func (f *fixture) largeProducer() rocketmq.Producer {
	return f.newProducer(
		producer.WithCompressMsgBodyOverHowmuch(2*bodyLimit), producer.WithSendMsgTimeout(30*time.Second))
}

func incompressible(size int) []byte {
	body := make([]byte, size)
	rand.New(rand.NewSource(int64(size))).Read(body)
	return body
}

// Drives the client that openapi-generator made: go run . http://127.0.0.1:8710
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"smoke/curlew"
)

func main() {
	configuration := curlew.NewConfiguration()
	configuration.Servers = curlew.ServerConfigurations{{URL: os.Args[1]}}
	client := curlew.NewAPIClient(configuration)
	ctx := context.Background()
	topics, messages := client.TopicsAPI, client.MessagesAPI
	name := fmt.Sprintf("smoke-%d", time.Now().UnixNano())

	settings := curlew.NewTopicBody()
	settings.SetQueues(1)
	made, _, err := topics.PutTopic(ctx, name).TopicBody(*settings).Execute()
	check(err)
	is(made.GetQueues() == 1)

	everyByte := make([]byte, 256)
	for value := range everyByte {
		everyByte[value] = byte(value)
	}
	paid, bytes := curlew.NewBatchEntry(), curlew.NewBatchEntry()
	paid.SetText("paid")
	paid.SetTag("created")
	bytes.SetBodyBase64(base64.StdEncoding.EncodeToString(everyByte))
	batch := curlew.NewBatchRequest([]curlew.BatchEntry{*paid, *bytes})
	sent, _, err := messages.SendBatch(ctx, name).BatchRequest(*batch).Execute()
	check(err)
	first := sent.Results[0]
	is(first.GetQueueOffset() == 0 && first.GetStoreTimeMs() > 1<<32)

	pulled, _, err := messages.PullMessages(ctx, name, 0).Offset(0).Execute()
	check(err)
	is(pulled.Messages[0].MessageId == first.GetMessageId())
	is(pulled.Messages[0].GetTag() == "created" && pulled.Messages[0].GetText() == "paid")
	back, err := base64.StdEncoding.DecodeString(pulled.Messages[1].GetBodyBase64())
	check(err)
	is(string(back) == string(everyByte))

	asked := curlew.NewReceiveBody()
	asked.SetMaxMessages(10)
	asked.SetWait("20s")
	leased, _, err := messages.ReceiveMessages(ctx, name, "smoke").ReceiveBody(*asked).Execute()
	check(err)
	is(len(leased.Messages) == 2)
	handles := []string{leased.Messages[0].ReceiptHandle, leased.Messages[1].ReceiptHandle}
	settled, _, err := messages.AckMessages(ctx, name, "smoke").AckBody(*curlew.NewAckBody(handles)).Execute()
	check(err)
	is(settled.Succeeded == 2 && settled.Failed == 0)

	_, answer, err := topics.GetTopic(ctx, name+"x").Execute()
	var refused *curlew.GenericOpenAPIError
	is(errors.As(err, &refused) && answer.StatusCode == 404)
	var problem curlew.Problem
	check(json.Unmarshal(refused.Body(), &problem))
	is(string(problem.Code) == "TOPIC_NOT_FOUND")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func is(so bool) {
	if !so {
		panic("it is not so")
	}
}

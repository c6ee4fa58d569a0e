// Drives the client whose types were generated from openapi/openapi.json:
// node compiled/smoke.js http://127.0.0.1:8710

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./generated/curlew.js";

const everyByte = Uint8Array.from({ length: 256 }, (_, index) => index);
const name = `smoke-${process.hrtime.bigint()}`;
const baseUrl = process.argv[2] ?? "http://127.0.0.1:8710";
const client = createClient<paths>({ baseUrl });
const topic = { topic: name };

const made = await client.PUT("/v1/topics/{topic}", {
  params: { path: topic },
  body: { queues: 1 },
});
assert.equal(made.data?.queues, 1);

const sent = await client.POST("/v1/topics/{topic}/messages", {
  params: { path: topic, query: { tag: "bytes" }, header: { "MQ-Keys": "a b" } },
  headers: { "Content-Type": "application/octet-stream" },
  body: everyByte as unknown as string, // the types of binary bodies are `string`
  bodySerializer: (body) => body as unknown as BodyInit,
});
assert.equal(sent.response.status, 201);
const messageId = sent.data?.message_id ?? "";

const pulled = await client.GET("/v1/topics/{topic}/queues/{queue}/messages", {
  params: { path: { ...topic, queue: 0 }, query: { offset: 0, body: "base64" } },
});
const message = pulled.data?.messages[0];
assert.equal(message?.message_id, messageId);
assert.equal(message?.tag, "bytes");
assert.deepEqual(message?.keys, ["a", "b"]);
assert.deepEqual(Buffer.from(message?.body_base64 ?? "", "base64"), Buffer.from(everyByte));

const raw = await client.GET("/v1/topics/{topic}/messages/{message_id}", {
  params: { path: { ...topic, message_id: messageId }, query: { format: "raw" } },
  parseAs: "arrayBuffer",
});
assert.deepEqual(Buffer.from(raw.data as ArrayBuffer), Buffer.from(everyByte));

const batch = await client.POST("/v1/topics/{topic}/messages:batch", {
  params: { path: topic },
  body: { messages: [{ text: "a", id: "1" }, { text: "b", queue_id: 9 }] },
});
assert.equal(batch.response.status, 207);
assert.equal(batch.data?.results[1]?.error?.code, "QUEUE_NOT_FOUND");

const group = { ...topic, group: "smoke" };
const leased = await client.POST("/v1/topics/{topic}/groups/{group}/messages:receive", {
  params: { path: group },
  body: { max_messages: 10, wait: "20s" },
});
if (leased.error) throw new Error(leased.error.detail);
const handles = leased.data.messages.map((each) => each.receipt_handle); // the error is out: data is there
assert.equal(handles.length, 2);
const settled = await client.POST("/v1/topics/{topic}/groups/{group}/messages:ack", {
  params: { path: group },
  body: { receipt_handles: handles },
});
assert.deepEqual([settled.data?.succeeded, settled.data?.failed], [2, 0]);

const later = await client.POST("/v1/topics/{topic}/messages", {
  params: { path: topic, query: { deliver_at_ms: Date.now() + 3_600_000 } },
  headers: { "Content-Type": "application/vnd.curlew+json" }, // without it the JSON is the message
  body: { body: { id: 17 }, tag: "created", keys: ["order-17"] },
});
assert.equal(typeof later.data?.recall_handle, "string");
assert.deepEqual([later.data?.queue_offset, later.data?.transaction_id], [undefined, undefined]);

const found = await client.GET("/v1/topics/{topic}/messages", {
  params: { path: topic, query: { page_size: 10, tag: "bytes" } },
});
assert.deepEqual(found.data?.messages.map((each) => each.message_id), [messageId]);

const member = { client_id: "smoke-1", subscriptions: [topic], generation: 0, wait: "20s" };
const path = { group: "smoke-polled" };
const joined = await client.POST("/v1/groups/{group}/members:poll", { params: { path }, body: member });
assert.deepEqual(joined.data?.messages.map((each) => each.text), [undefined, "a"]);
assert.deepEqual(joined.data.queues.map((each) => each.next_offset), [2]);

const failed = await client.GET("/v1/topics/{topic}", {
  params: { path: { topic: name + "x" } },
});
assert.equal(failed.response.status, 404);
assert.equal(failed.error?.code, "TOPIC_NOT_FOUND");
assert.equal(failed.error?.hint, `did you mean '${name}'?`);

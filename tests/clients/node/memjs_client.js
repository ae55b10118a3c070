// memjs (binary): usage: node memjs_client.js HOST:PORT [USER PASSWORD]
"use strict";

const assert = require("node:assert");
const memjs = require("memjs");

const RECORDS = Number(process.env.RECORDS ?? 20_000);
const OPTIONS = { timeout: 20, retries: 0, logger: { log() {} } };

async function single(cache) {
  assert.equal(await cache.set("greeting", "hello", { expires: 1000 }), true);
  assert.equal(String((await cache.get("greeting")).value), "hello");
  assert.equal((await cache.get("nothing")).value, null);
  assert.equal(await cache.add("greeting", "x", { expires: 1000 }), false);
  assert.equal(await cache.replace("greeting", "hi", { expires: 1000 }), true);
  assert.equal(await cache.replace("nothing", "x", {}), false);
  assert.equal(await cache.append("greeting", "!"), true);
  // memjs 1.3.2 sends the opcode of an append for a prepend.
  assert.equal(await cache.prepend("greeting", ">"), true);
  assert.equal(String((await cache.get("greeting")).value), "hi!>");
  assert.equal(await cache.touch("greeting", 1000), true);
  assert.equal(await cache.delete("greeting"), true);
  assert.equal(await cache.delete("greeting"), false);
  assert.equal((await cache.increment("count", 5, { initial: 10 })).value, 10);
  assert.equal((await cache.increment("count", 5, { initial: 10 })).value, 15);
  assert.equal((await cache.decrement("count", 20, {})).value, 0);
  for (const size of [0, 1, 4095, 4096, 100_000, 1_000_000]) {
    const value = Buffer.alloc(size, "s");
    assert.equal(await cache.set("sized", value, {}), true);
    assert.ok(value.equals((await cache.get("sized")).value ?? Buffer.alloc(0)));
  }
}

async function many(cache) {
  const value = (number) => `${number};`.repeat(150);
  for (let from = 0; from < RECORDS; from += 100) {
    const batch = Array.from({ length: 100 }, (_, at) => from + at);
    await Promise.all(batch.map((number) => cache.set(`m${number}`, value(number), { expires: 1000 })));
  }
  for (let from = 0; from < RECORDS; from += 100) {
    const batch = Array.from({ length: 100 }, (_, at) => from + at);
    const found = await Promise.all(batch.map((number) => cache.get(`m${number}`)));
    batch.forEach((number, at) => assert.equal(String(found[at].value), value(number)));
  }
}

const stats = (cache) =>
  new Promise((resolve, reject) =>
    cache.stats((error, _, all) => (error ? reject(error) : resolve(all))));

async function refused(server, username) {
  const cache = memjs.Client.create(server, { ...OPTIONS, timeout: 2, username, password: "wrong" });
  await assert.rejects(cache.set("greeting", "x", {}));
  cache.close();
}

async function main() {
  const [server, username, password] = process.argv.slice(2);
  const cache = memjs.Client.create(server, { ...OPTIONS, username, password });
  await single(cache);
  await many(cache);
  assert.ok(Number((await stats(cache)).curr_items) > 0);
  if (username) await refused(server, username);
  await cache.flush();
  assert.equal((await cache.get("m1000")).value, null);
  cache.close();
  const { version } = require("memjs/package.json");
  const protocol = username ? "binary, SASL" : "binary";
  const exercised = "get, set, add, replace, append, prepend, touch, delete, increment, decrement, stats, flush";
  console.log(`client | memjs | ${version} | JavaScript | ${protocol} | ${exercised}`);
  console.log(`memjs: ${RECORDS} records and every command answered as expected`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

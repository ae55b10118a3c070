// memcached from npm (classic ASCII): usage: node memcached_client.js HOST:PORT
"use strict";

const assert = require("node:assert");
const { promisify } = require("node:util");
const Memcached = require("memcached");

const RECORDS = 20_000;

async function main() {
  const cache = new Memcached(process.argv[2], { timeout: 20_000, retries: 0 });
  const call = (name) => promisify(cache[name]).bind(cache);
  const [get, gets, getMulti, set, add, replace, append, cas, incr, decr, del, touch] = [
    "get", "gets", "getMulti", "set", "add", "replace", "append", "cas", "incr", "decr", "del", "touch",
  ].map(call);

  assert.equal(await set("greeting", "hello", 1000), true);
  assert.equal(await get("greeting"), "hello");
  assert.equal(await get("nothing"), undefined);
  await assert.rejects(add("greeting", "x", 1000));
  assert.equal(await replace("greeting", "hi", 1000), true);
  assert.equal(await append("greeting", "!"), true);
  const found = await gets("greeting");
  assert.equal(found.greeting, "hi!");
  assert.equal(await cas("greeting", "two", found.cas, 1000), true);
  assert.equal(await cas("greeting", "three", found.cas, 1000), false);
  assert.equal(await touch("greeting", 1000), true);
  assert.equal(await set("count", 10, 1000), true);
  assert.equal(await incr("count", 5), 15);
  assert.equal(await decr("count", 5), 10);
  assert.equal(await del("greeting"), true);
  assert.equal(await get("greeting"), undefined);

  const value = (number) => `${number};`.repeat(150);
  for (let from = 0; from < RECORDS; from += 100) {
    const batch = Array.from({ length: 100 }, (_, at) => from + at);
    await Promise.all(batch.map((number) => set(`n${number}`, value(number), 1000)));
  }
  for (let from = 0; from < RECORDS; from += 100) {
    const batch = Array.from({ length: 100 }, (_, at) => from + at);
    const values = await getMulti(batch.map((number) => `n${number}`));
    for (const number of batch) assert.equal(values[`n${number}`], value(number));
  }
  cache.end();
  const { version } = require("memcached/package.json");
  const exercised = "get, gets, getMulti, set, add, replace, append, cas, touch, del, incr, decr";
  console.log(`client | memcached (npm) | ${version} | JavaScript | ASCII | ${exercised}`);
  console.log(`memcached (npm): ${RECORDS} records and every command answered as expected`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

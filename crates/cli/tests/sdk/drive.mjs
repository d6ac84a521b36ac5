// Drives the published TypeScript SDK with our binary in the place of the one it comes with.
//
// The endpoint is scripted by the test that starts this file: the first word of a prompt picks what
// the model does. Whatever an endpoint can see of a run is checked over there; here it is what a
// program that uses the SDK sees. Every check prints its name, and the first that fails ends it all.

import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Codex } from "@openai/codex-sdk";

const { BINARY, BASE_URL, LAB, MARK } = process.env;
const LIMIT_MS = 20_000;
const SOON_MS = 5_000;

const workspace = path.join(LAB, "ws");
const env = {
  PATH: "/usr/local/bin:/usr/bin:/bin",
  HOME: path.join(LAB, "uhome"),
  HEDDLE_HOME: path.join(LAB, "home"),
};
const codex = new Codex({ codexPathOverride: BINARY, baseUrl: BASE_URL, apiKey: "sdk-key", env });
const start = (options = {}) => codex.startThread({ workingDirectory: workspace, ...options });

async function check(name, body) {
  try {
    await body();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`FAILED ${name}\n${error.stack}`);
    process.exit(1);
  }
}

/** Waits for a condition, and not for luck. */
async function until(what, ready, limit = LIMIT_MS) {
  const deadline = Date.now() + limit;
  while (!ready()) {
    assert(Date.now() < deadline, `${what}: not within ${limit} ms`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Counts the processes whose arguments hold the mark of the long command. */
function marked() {
  const line = (pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8");
    } catch {
      return ""; // It ended while we looked.
    }
  };
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name) && line(name).includes(MARK)).length;
}

/** The promise fails, soon after `since()`, and the error says all `words`. */
async function fails(promise, words, since = Date.now()) {
  const error = await promise.then(
    (value) => assert.fail(`no failure but ${JSON.stringify(value)}`),
    (error) => error,
  );
  for (const word of words) assert(String(error).includes(word), `no ${word} in ${error}`);
  assert(Date.now() - since < SOON_MS, `it took ${Date.now() - since} ms`);
}

async function collect(thread, input, options) {
  const events = [];
  const streamed = await thread.runStreamed(input, options);
  for await (const event of streamed.events) events.push(event);
  return events;
}

await check("run() gives items, answer and usage", async () => {
  const thread = start({ sandboxMode: "danger-full-access" });
  assert.equal(thread.id, null);
  const turn = await thread.run("command please");
  assert.equal(turn.finalResponse, "It said so.");
  assert.deepEqual(turn.items.map((item) => item.type), ["command_execution", "agent_message"]);
  const [command] = turn.items;
  assert.deepEqual(
    [command.aggregated_output, command.exit_code, command.status],
    ["so\n", 0, "completed"],
  );
  assert.deepEqual(turn.usage, {
    input_tokens: 200,
    cached_input_tokens: 20,
    cache_write_input_tokens: 0,
    output_tokens: 40,
    reasoning_output_tokens: 10,
  });
  assert.match(thread.id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-/);
});

await check("runStreamed() gives events in their order", async () => {
  const thread = start({ sandboxMode: "danger-full-access" });
  const events = await collect(thread, "command please");
  assert.deepEqual(
    events.map((event) => event.type),
    ["thread.started", "turn.started", "item.started", "item.completed", "item.completed", "turn.completed"],
  );
  assert.equal(events[0].thread_id, thread.id);
  assert.equal(events[2].item.status, "in_progress");
});

await check("several texts are one prompt, and images go along", async () => {
  const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  for (const name of ["one.png", "two.png"]) {
    writeFileSync(path.join(workspace, name), Buffer.from(pixel, "base64"));
  }
  const turn = await start().run([
    { type: "text", text: "images please" },
    { type: "local_image", path: path.join(workspace, "one.png") },
    { type: "text", text: "more text" },
    { type: "local_image", path: path.join(workspace, "two.png") },
  ]);
  assert.equal(turn.finalResponse, "Pretty.");
});

await check("an output schema is sent, and the answer is JSON", async () => {
  const outputSchema = {
    type: "object",
    properties: { colour: { type: "string" } },
    required: ["colour"],
    additionalProperties: false,
  };
  const turn = await start().run("schema please", { outputSchema });
  assert.deepEqual(JSON.parse(turn.finalResponse), { colour: "blue" });
});

await check("every option of a thread is taken", async () => {
  const more = path.join(LAB, "more");
  const elsewhere = path.join(LAB, "elsewhere");
  mkdirSync(more);
  mkdirSync(elsewhere);
  const config = { model_verbosity: "low", tools: { update_plan: { enabled: true } } };
  const configOverrides = ['model_reasoning_summary="detailed"'];
  const own = new Codex({
    codexPathOverride: BINARY, baseUrl: BASE_URL, apiKey: "sdk-key", env, config, configOverrides,
  });
  const thread = own.startThread({
    model: "gpt-5.5-of-the-sdk",
    threadSource: "test",
    sandboxMode: "workspace-write",
    workingDirectory: elsewhere,
    skipGitRepoCheck: true,
    additionalDirectories: [more, workspace],
    modelReasoningEffort: "high",
    networkAccessEnabled: true,
    webSearchMode: "live",
    approvalPolicy: "on-request",
  });
  const turn = await thread.run("options please", { cyberAccessProgram: "standard" });
  assert.equal(turn.finalResponse, "All of them.");
});

await check("every level of effort and every approval policy is accepted", async () => {
  const efforts = ["minimal", "low", "medium", "high", "xhigh", "max", "ultra", "persistent"];
  for (const modelReasoningEffort of efforts) {
    await start({ modelReasoningEffort }).run("plain please");
  }
  for (const approvalPolicy of ["never", "on-request", "on-failure", "untrusted"]) {
    await start({ approvalPolicy }).run("plain please");
  }
  for (const webSearchEnabled of [true, false]) await start({ webSearchEnabled }).run("plain please");
});

await check("a directory that is no repository is refused unless allowed", async () => {
  const workingDirectory = path.join(LAB, "uhome");
  const thread = start({ workingDirectory });
  await fails(thread.run("plain please"), ["code 2", "is not inside a git repository"]);
  const turn = await start({ workingDirectory, skipGitRepoCheck: true }).run("plain please");
  assert.equal(turn.finalResponse, "Plain.");
});

await check("a failed turn is an error with its message", async () => {
  await fails(start().run("fail please"), ["the loom is on fire"]);
  const events = [];
  const { events: stream } = await start().runStreamed("fail please");
  const read = async () => {
    for await (const event of stream) events.push(event);
  };
  await fails(read(), ["code 1"]);
  const last = events.at(-1);
  assert.equal(last.type, "turn.failed");
  assert.match(last.error.message, /the loom is on fire/);
});

await check("bad configuration is an error with its message", async () => {
  const bad = new Codex({ codexPathOverride: BINARY, baseUrl: BASE_URL, env, config: { model: 5 } });
  const thread = bad.startThread({ workingDirectory: workspace });
  await fails(thread.run("plain please"), ["code 2", "`model` must be a string"]);
});

await check("an aborted turn is rejected soon, and its command is gone", async () => {
  const abort = new AbortController();
  const turn = start({ sandboxMode: "danger-full-access" }).run("long please", { signal: abort.signal });
  turn.catch(() => {}); // It may fail before we look.
  await until("the command", () => marked() >= 2);
  const since = Date.now();
  abort.abort();
  await fails(turn, ["abort"], since);
  await until("the end of the command", () => marked() === 0, SOON_MS);
});

await check("a signal that was aborted before starts nothing", async () => {
  await fails(start().run("never please", { signal: AbortSignal.abort() }), ["abort"]);
});

await check("a reader that leaves the loop ends the command", async () => {
  const { events } = await start({ sandboxMode: "danger-full-access" }).runStreamed("long please");
  for await (const event of events) {
    if (event.type !== "item.started") continue;
    await until("the command", () => marked() >= 2);
    break;
  }
  await until("the end of the command", () => marked() === 0, SOON_MS);
});

await check("a second turn of a thread", async () => {
  const thread = start();
  const first = await thread.run("plain please");
  const second = await thread.run("plain please");
  assert.equal(second.finalResponse, first.finalResponse);
  assert.equal(second.usage.input_tokens, 2 * first.usage.input_tokens);
});

await check("a thread that another process began", async () => {
  const thread = start();
  await thread.run("plain please");
  const again = codex.resumeThread(thread.id, { workingDirectory: workspace });
  await again.run("plain please");
  assert.equal(again.id, thread.id);
});

console.log("done");

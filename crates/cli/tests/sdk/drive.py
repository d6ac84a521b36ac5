"""Drives an app-server with the published Python SDK, and prints one line for each thing that happened.

Usage: drive.py BINARY. The environment has the home, with a provider whose answers are scripted.
"""

import asyncio
import os
import sys

from openai_codex import (
    ApprovalMode, AsyncCodex, Codex, CodexConfig, ImageInput, LocalImageInput, MentionInput, Sandbox, TextInput,
)
from openai_codex.api import Thread
from openai_codex.client import CodexClient

NOWHERE = "01a1e059-0000-7000-8000-000000000000"
DOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# A failure that is tried again would take seconds.
ONCE = ("model_providers.mock.request_max_retries=0", "model_providers.mock.stream_max_retries=0")
# Whether both programs have the same name for it. For the others, ours has the protocol's own name (badRequest,
# unauthorized, responseStreamDisconnected) where the reference says `other` or how the connection failed.
FAILURES = {
    "BAD": False, "UNAUTHORIZED": False, "FORBIDDEN": False, "RATE": True, "USAGE": True, "BROKEN": True,
    "WINDOW": True, "QUOTA": True, "OVERLOADED": True, "POLICY": False, "CUT": False,
}


def text(result):
    return result.final_response


def refused(what, call):
    try:
        call()
        print("refused", what, "no error")
    except Exception as error:
        print("refused", what, type(error).__name__, getattr(error, "code", None))


def main(binary):
    config = CodexConfig(codex_bin=binary, config_overrides=ONCE)
    with Codex(config) as codex:
        work(codex)
    approvals(config)
    failures(config)
    asyncio.run(many(config))


def work(codex):
    print("name", codex.metadata.userAgent.split("/")[0])
    print("account", codex.account().account, codex.account().requires_openai_auth)
    models = codex.models().data
    print("models", any(model.is_default for model in models), all(model.supported_reasoning_efforts for model in models))
    print("hidden models", len(codex.models(include_hidden=True).data) >= len(models))
    thread = codex.thread_start(sandbox=Sandbox.full_access, approval_mode=ApprovalMode.deny_all)
    result = thread.run("Q-ONE")
    print("run", text(result), result.status.value, [item.root.type for item in result.items], result.error)
    print("usage", result.usage.total.total_tokens, result.usage.last.total_tokens)
    print("times", result.started_at is not None, result.completed_at is not None, result.duration_ms is not None)

    kinds = [notification.method for notification in thread.turn("Q-STREAM").stream()]
    print("stream", kinds)

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    print("schema", text(thread.run("Q-JSON", output_schema=schema)))
    for what, image in [("file", LocalImageInput("dot.png")), ("url", ImageInput(DOT))]:
        print("image", what, text(thread.run([TextInput("Q-LOOK"), image])))
    print("mention", text(thread.run([TextInput("Q-MENTION"), MentionInput("dot", "app://dot")])))
    print("settings", text(thread.run("Q-SETTINGS", model="gpt-5.4", effort="low", sandbox=Sandbox.read_only, cwd=os.getcwd())))

    read = thread.read(include_turns=True).thread
    print("read", len(read.turns), [[item.root.type for item in turn.items] for turn in read.turns][:3])
    print("read", {turn.status.value for turn in read.turns}, read.preview, read.ephemeral, thread.read().thread.turns)
    thread.set_name("a name")
    print("name", thread.read().thread.name)
    listed = codex.thread_list()
    print("list", [found.id == thread.id for found in listed.data], listed.data[0].name, listed.next_cursor)

    resumed = codex.thread_resume(thread.id)
    print("resume", resumed.id == thread.id, text(resumed.run("Q-RESUME")))
    forked = codex.thread_fork(thread.id)
    print("fork", forked.id != thread.id, text(forked.run("Q-FORK")))
    print("forked from", forked.read().thread.forked_from_id == thread.id)
    page = codex.thread_list(limit=1)
    print("page", len(page.data), page.next_cursor is not None)
    found = codex.thread_list(search_term="a name")
    print("found", [item.name for item in found.data], forked.read().thread.name)

    turn = thread.turn("Q-LONG")
    steps = turn.stream()
    for notification in steps:
        if notification.method == "item/agentMessage/delta":
            break
    print("steer", turn.steer("and more").turn_id == turn.id)
    turn.interrupt()
    rest = [n for n in steps]
    print("interrupt", [n.payload.turn.status.value for n in rest if n.method == "turn/completed"])
    refused("steer after the end", lambda: turn.steer("late"))

    forked.compact()
    print("compact", [item.root.type for item in compaction(forked).items])
    print("after that", text(forked.run("Q-AFTER")))
    codex.thread_archive(forked.id)
    print("archived", len(codex.thread_list(archived=True).data), len(codex.thread_list().data))
    refused("resume of an archived thread", lambda: codex.thread_resume(forked.id))
    print("unarchived", codex.thread_unarchive(forked.id).id == forked.id, len(codex.thread_list(archived=True).data))
    print("after", text(codex.thread_resume(forked.id).run("Q-RESUME")))
    short = codex.thread_start(ephemeral=True, sandbox=Sandbox.full_access)
    print("ephemeral", text(short.run("Q-ONE")), len(codex.thread_list().data))
    fresh = codex.thread_start(sandbox=Sandbox.full_access)
    for what, call in [
        ("resume of an unknown thread", lambda: codex.thread_resume(NOWHERE)),
        ("resume of a bad id", lambda: codex.thread_resume("nope")),
        ("fork of an unknown thread", lambda: codex.thread_fork(NOWHERE)),
        ("archive of an unknown thread", lambda: codex.thread_archive(NOWHERE)),
        ("unarchive of an unknown thread", lambda: codex.thread_unarchive(NOWHERE)),
        ("read of an unknown thread", lambda: codex._client.thread_read(NOWHERE)),
        ("turn in an unknown thread", lambda: codex._client.turn_start(NOWHERE, "x")),
        ("name of an unknown thread", lambda: codex._client.thread_set_name(NOWHERE, "x")),
        ("empty name", lambda: thread.set_name(" ")),
        ("compact of an unknown thread", lambda: codex._client.thread_compact(NOWHERE)),
        ("bad cursor", lambda: codex.thread_list(cursor="nonsense")),
        ("unknown method", lambda: codex._client.request("no/such", {}, response_model=dict)),
        ("bad params", lambda: codex._client._request_raw("turn/start", {"threadId": 7})),
        ("empty text", lambda: fresh.run("")),
        ("missing image", lambda: fresh.run([LocalImageInput("missing.png")])),
    ]:
        refused(what, call)


def compaction(thread):
    """Waits for the turn of a compaction; the SDK shows no notifications of it."""
    while True:
        read = thread.read(include_turns=True).thread
        last = read.turns[-1]
        if read.status.root.type == "idle" and any(item.root.type == "contextCompaction" for item in last.items):
            return last


def approvals(config):
    """Answers each kind of question in each way, twice; `nonsense` is no decision, and `empty` has none."""
    asked = []

    def answer(method, params):
        asked.append(method)
        decision = wanted[0]
        if decision == "amendment":
            words = params["proposedExecpolicyAmendment"]
            return {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": words}}}
        return {} if decision == "empty" else {"decision": decision}

    wanted = [None]
    with CodexClient(config, answer) as client:
        client.initialize()
        for kind, again, decisions, settings in [
            ("COMMAND", "AGAIN", ["accept", "acceptForSession", "amendment", "decline", "cancel", "nonsense", "empty"],
             {"approvalPolicy": "untrusted", "sandbox": "workspace-write"}),
            ("PATCH", "REPATCH", ["accept", "acceptForSession", "decline", "cancel", "nonsense", "empty"],
             {"approvalPolicy": "on-request", "sandbox": "read-only"}),
        ]:
            for wanted[0] in decisions:
                thread = Thread(client, client.thread_start(settings).thread.id)
                for round in [kind, again]:
                    asked.clear()
                    result = thread.run(f"Q-{round}-{wanted[0]}.")
                    items = [item.root for item in result.items]
                    shown = [item.status.value for item in items if item.type in ("commandExecution", "fileChange")]
                    print(round.lower(), wanted[0], len(asked), result.status.value, shown, text(result))
    print("files", sorted(name for name in os.listdir() if name.endswith(".txt")))
    print("ran", open("ran.txt").read().split())


def failures(config):
    with Codex(config) as codex:
        for what in FAILURES:
            thread = codex.thread_start(sandbox=Sandbox.full_access)
            for notification in thread.turn(f"Q-{what}").stream():
                if notification.method == "turn/completed":
                    turn = notification.payload.turn
                    info = turn.error.codex_error_info.model_dump(mode="json", by_alias=True)
                    print("failure", what, turn.status.value, info if FAILURES[what] else bool(info))
        try:
            codex.thread_start(sandbox=Sandbox.full_access).run("Q-BAD")
            print("failed run: no error")
        except Exception as error:
            print("failed run", type(error).__name__)


async def many(config):
    async with AsyncCodex(config) as codex:
        async def one(number):
            thread = await codex.thread_start(sandbox=Sandbox.full_access)
            return (await thread.run(f"Q-MANY {number}")).final_response

        answers = await asyncio.gather(*(one(number) for number in range(20)))
        print("many", set(answers), len(answers))


main(sys.argv[1])

"""Drives an app-server with the published Python SDK, and prints one line for each thing that happened.

Usage: drive.py BINARY. The environment has the home, with a provider whose answers are scripted.
"""

import asyncio
import sys

from openai_codex import ApprovalMode, AsyncCodex, Codex, CodexConfig, LocalImageInput, Sandbox, TextInput


def text(result):
    return result.final_response


def main(binary):
    config = CodexConfig(codex_bin=binary)
    with Codex(config) as codex:
        print("name", codex.metadata.userAgent.split("/")[0])
        print("account", codex.account().account)
        print("models", any(model.is_default for model in codex.models().data))
        thread = codex.thread_start(sandbox=Sandbox.full_access, approval_mode=ApprovalMode.deny_all)
        result = thread.run("Q-ONE")
        print("run", text(result), result.status.value, len(result.items))
        print("usage", result.usage.total.total_tokens > 0)

        kinds = []
        for notification in thread.turn("Q-STREAM").stream():
            kinds.append(notification.method)
        print("stream", kinds[0], kinds[-1], "item/agentMessage/delta" in kinds)

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
        print("schema", text(thread.run("Q-JSON", output_schema=schema)))

        image = thread.run([TextInput("Q-LOOK"), LocalImageInput("dot.png")])
        print("image", text(image))

        read = thread.read(include_turns=True).thread
        print("read", len(read.turns), [len(turn.items) for turn in read.turns])
        thread.set_name("a name")
        print("name", thread.read().thread.name)
        listed = codex.thread_list()
        print("list", [found.id == thread.id for found in listed.data], listed.data[0].name)

        resumed = codex.thread_resume(thread.id)
        print("resume", text(resumed.run("Q-RESUME")))
        forked = codex.thread_fork(thread.id)
        print("fork", forked.id != thread.id, text(forked.run("Q-FORK")))

        turn = thread.turn("Q-LONG")
        steps = turn.stream()
        for notification in steps:
            if notification.method == "item/agentMessage/delta":
                break
        turn.steer("and more")
        turn.interrupt()
        status = [n.payload.turn.status.value for n in steps if n.method == "turn/completed"]
        print("interrupt", status)

        thread.compact()
        codex.thread_archive(forked.id)
        print("archived", len(codex.thread_list(archived=True).data))
        print("unarchived", codex.thread_unarchive(forked.id).id == forked.id)
        for what, call in [
            ("unknown thread", lambda: codex.thread_resume("01a1e059-0000-7000-8000-000000000000")),
            ("bad id", lambda: codex.thread_resume("nope")),
        ]:
            try:
                call()
                print(what, "no error")
            except Exception as error:
                print(what, type(error).__name__, getattr(error, "code", None))
        try:
            codex.thread_start(sandbox=Sandbox.full_access).run("Q-FAIL")
            print("failed turn: no error")
        except Exception as error:
            print("failed turn", type(error).__name__)
    asyncio.run(many(config))


async def many(config):
    async with AsyncCodex(config) as codex:
        async def one(number):
            thread = await codex.thread_start(sandbox=Sandbox.full_access)
            return (await thread.run(f"Q-MANY {number}")).final_response

        answers = await asyncio.gather(*(one(number) for number in range(20)))
        print("many", set(answers), len(answers))


main(sys.argv[1])

"""OpenAI's own SDK."""

import json
import sys

from openai import OpenAI

url, model, prompt, length = sys.argv[1:5]
client = OpenAI(base_url=url, api_key="none", max_retries=0)
asked = {"model": model, "max_tokens": int(length), "temperature": 0}
messages = [{"role": "user", "content": prompt}]

completion = client.completions.create(prompt=prompt, **asked).choices[0].text
parts = client.completions.create(prompt=prompt, stream=True, **asked)
first = client.chat.completions.create(messages=messages, **asked).choices[0].message
deltas = client.chat.completions.create(messages=messages, stream=True, **asked)
turns = [*messages, first, *messages]
answers = {
    "completion": completion,
    "streamed completion": "".join(part.choices[0].text for part in parts),
    "chat": first.content,
    "streamed chat": "".join(delta.choices[0].delta.content or "" for delta in deltas),
    "second turn": client.chat.completions.create(messages=turns, **asked).choices[0].message.content,
}
print(json.dumps(answers))

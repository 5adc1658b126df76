"""litellm, told that it speaks to a server with OpenAI's API."""

import json
import sys

import litellm

url, model, prompt, length = sys.argv[1:5]
asked = {"api_base": url, "api_key": "none", "max_tokens": int(length), "temperature": 0, "num_retries": 0}
messages = [{"role": "user", "content": prompt}]

text = {"model": f"text-completion-openai/{model}", "prompt": prompt, **asked}
chat = {"model": f"openai/{model}", **asked}
parts = litellm.text_completion(stream=True, **text)
first = litellm.completion(messages=messages, **chat).choices[0].message
deltas = litellm.completion(messages=messages, stream=True, **chat)
turns = [*messages, first, *messages]
answers = {
    "completion": litellm.text_completion(**text).choices[0].text,
    "streamed completion": "".join(part.choices[0].text or "" for part in parts),
    "chat": first.content,
    "streamed chat": "".join(delta.choices[0].delta.content or "" for delta in deltas),
    "second turn": litellm.completion(messages=turns, **chat).choices[0].message.content,
}
print(json.dumps(answers))

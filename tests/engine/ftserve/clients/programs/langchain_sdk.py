"""langchain-openai."""

import json
import sys

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAI

url, model, prompt, length = sys.argv[1:5]
asked = {"model": model, "base_url": url, "api_key": "none", "max_tokens": int(length), "temperature": 0}
text, chat = OpenAI(max_retries=0, **asked), ChatOpenAI(max_retries=0, **asked)

question = HumanMessage(prompt)
first = chat.invoke([question])
answers = {
    "completion": text.invoke(prompt),
    "streamed completion": "".join(text.stream(prompt)),
    "chat": first.content,
    "streamed chat": "".join(part.content for part in chat.stream([question])),
    "second turn": chat.invoke([question, first, question]).content,
}
print(json.dumps(answers))

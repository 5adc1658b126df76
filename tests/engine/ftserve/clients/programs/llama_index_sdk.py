"""llama-index, by its class for servers like OpenAI's."""

import json
import sys

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

url, model, prompt, length = sys.argv[1:5]
asked = {"model": model, "api_base": url, "api_key": "none", "max_tokens": int(length), "temperature": 0}
asked |= {"context_window": 128, "max_retries": 0}
text, chat = OpenAILike(is_chat_model=False, **asked), OpenAILike(is_chat_model=True, **asked)

question = ChatMessage(role="user", content=prompt)
first = chat.chat([question]).message
answers = {
    "completion": text.complete(prompt).text,
    "streamed completion": "".join(part.delta or "" for part in text.stream_complete(prompt)),
    "chat": first.content,
    "streamed chat": "".join(part.delta or "" for part in chat.stream_chat([question])),
    "second turn": chat.chat([question, first, question]).message.content,
}
print(json.dumps(answers))

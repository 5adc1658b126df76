"""lm_eval's model for completions over the network, asked as a task with generate_until asks it."""

import json
import sys

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

url, name, prompt, length = sys.argv[1:5]
model = LocalCompletionsAPI(
    model=name, base_url=f"{url}/completions", tokenizer_backend=None, max_gen_toks=int(length), max_retries=1
)
wanted = {"until": ["\n\n"], "temperature": 0, "max_gen_toks": int(length)}
(answer,) = model.generate_until([Instance("generate_until", {}, (prompt, wanted), 0)], disable_tqdm=True)
print(json.dumps({"generate_until": answer}))

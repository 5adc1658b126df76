"""lm_eval's model for completions over the network, asked as its tasks ask it."""

import json
import sys

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

url, name, prompt, length = sys.argv[1:5]
asked = {"model": name, "base_url": f"{url}/completions", "max_gen_toks": int(length), "max_retries": 1}
writes = LocalCompletionsAPI(tokenizer_backend=None, **asked)
wanted = {"until": ["\n\n"], "temperature": 0, "max_gen_toks": int(length)}
(answer,) = writes.generate_until([Instance("generate_until", {}, (prompt, wanted), 0)], disable_tqdm=True)

# Tokens of the front's own, as lm_eval finds out itself.
rates = LocalCompletionsAPI(**asked)
assert rates.tokenizer_backend == "remote"
pairs = [(prompt, answer), (prompt, "zqxj!")]
asked_for = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
found = rates.loglikelihood(asked_for, disable_tqdm=True)
rated = [[pair[1], *one] for pair, one in zip(pairs, found, strict=True)]
print(json.dumps({"generate_until": answer, "loglikelihood": rated}))

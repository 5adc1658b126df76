"""lm_eval's log-likelihoods of continuations, of a server's model and by its tokenizer."""

import json
import sys

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

url, name, pairs = sys.argv[1:4]
model = LocalCompletionsAPI(model=name, base_url=f"{url}/completions", max_retries=1)
asked = [Instance("loglikelihood", {}, tuple(pair), number) for number, pair in enumerate(json.loads(pairs))]
print(json.dumps(model.loglikelihood(asked, disable_tqdm=True)))

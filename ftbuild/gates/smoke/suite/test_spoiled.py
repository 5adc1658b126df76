"""A model with a wrong weight file is not loaded, and the others go on answering."""

from __future__ import annotations

import re

import pytest

from ftbuild.client.connection import Refused, Unanswered
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import spoiled
from ftbuild.gates.smoke.served import Served, prompts


@pytest.mark.variants(dtypes=("fp32",))
@pytest.mark.variants(dtypes=("fp32",), tensor_para=2)
@pytest.mark.parametrize("name", spoiled.WRONG)
def test_a_wrong_weight_file_is_named_and_its_model_not_loaded(served: Served, name: str) -> None:
    if not served.on_gpu:
        pytest.skip("the sample's backend computes without weights")
    try:
        served.clients["http"].load(name)
    except Unanswered:
        raise
    except Refused as refused:
        # Whatever the answer says, the log says why.
        log = b"\n".join(served.server.container.get_logs())
        if not re.search(rb"weight file \S*/%s/\S* .*bytes are needed" % name.encode(), log):
            raise SmokeError(
                f"the model with a {name} file is refused, but for another reason: {refused.what}",
                hint="loading must name the file: patches/ft, 0495",
            ) from refused
    else:
        raise SmokeError(
            f"the model with a {name} file is loaded: it would answer noise",
            hint="a warning is not enough: patches/ft, 0495; patches/backend, 0130 to 0132",
        )
    served.check("one", served.ask(prompts("one"), runtime_top_k=1))

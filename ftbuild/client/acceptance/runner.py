"""The acceptance test as a whole."""

from __future__ import annotations

from ftbuild.client import model_metadata
from ftbuild.client.acceptance import end_to_end, identity, translation
from ftbuild.client.acceptance.options import AcceptanceOptions
from ftbuild.client.acceptance.report import AcceptanceReport
from ftbuild.client.acceptance.session import Session
from ftbuild.client.connection import Client
from ftbuild.client.model_metadata import ModelMetadata
from ftbuild.config.families import Tensors
from ftbuild.errors import ConfigError
from ftbuild.models import config_pbtxt, ensemble


def run(options: AcceptanceOptions) -> AcceptanceReport:
    """Run every test that the server's models and the options allow.

    Raises Refused when the server does not answer, ConfigError when the options do not fit its models.
    """
    clients = {protocol: Client(address, protocol) for protocol, address in options.addresses.items()}
    try:
        model = model_metadata.read(next(iter(clients.values())).config(config_pbtxt.MODEL))
        _require_family(model, options.tensors)
        usable = {p: client for p, client in clients.items() if p == "grpc" or not model.decoupled}
        if not usable:
            raise ConfigError("a model that streams its answers needs gRPC", hint="--grpc ADDRESS")
        session = Session(options, usable, model)
        notes = session.report.notes
        if len(usable) < len(clients):
            notes.append("the model streams its answers, which takes gRPC: HTTP was not tested")
        identity.check(session)
        if session.any_client.ready(ensemble.ENSEMBLE):
            end_to_end.check(session)
        else:
            notes.append("no ensemble is served: text was not tested")
        if options.bleu is not None:
            translation.check(session, options.bleu)
        return session.report
    finally:
        for client in clients.values():
            client.close()


def _require_family(model: ModelMetadata, known: Tensors) -> None:
    names = (known.prompt, known.prompt_length, known.answer_length)
    if missing := [name for name in names if name not in model.inputs]:
        raise ConfigError(
            f"the server's model is of another family: it takes no {', '.join(missing)}",
            hint="name the family that is served with --model",
        )

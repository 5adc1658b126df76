"""Acceptance by the BLEU score of translations."""

from __future__ import annotations

from ftbuild.client import bleu, model_metadata, tensors
from ftbuild.client.acceptance.options import BleuOptions
from ftbuild.client.acceptance.session import Session
from ftbuild.errors import ConfigError

TEST = "translation"
LENGTH = 128


def check(session: Session, bleu_options: BleuOptions) -> None:
    """Translate sentences over one protocol, and expect the score if a threshold is given."""
    options, model, report = session.options, session.model, session.report
    if options.tokenizer is None:
        raise ConfigError("a translation needs the model's tokenizer", hint="--tokenizer DIR")
    tokenizer = bleu.tokenizer(options.tokenizer)
    from ftbuild.models.tokenization import texts

    sources, references = bleu.pairs(bleu_options.source, bleu_options.target)
    translations: list[str] = []
    for start in range(0, len(sources), options.batch_size):
        batch = sources[start : start + options.batch_size]
        prompts = [tokenizer.encode(bleu_options.prefix + sentence).ids for sentence in batch]
        extra = model_metadata.options(model, model.parameters, len(prompts))
        request = {**session.schema.request(prompts, LENGTH), **extra}
        outputs = session.timed(TEST, session.any_client, model, request)
        answers = texts.answers(tokenizer, outputs[tensors.ANSWER], outputs[tensors.ANSWER_LENGTH])
        translations += [answer.decode() for answer in answers]
    report.bleu = round(bleu.bleu(translations, references), 2)
    if bleu_options.threshold is not None:
        low = report.bleu < bleu_options.threshold
        wrong = f"{report.bleu}; the first translation: {translations[0]!r}" if low else None
        report.expect(TEST, f"BLEU of {len(translations)} sentences at least {bleu_options.threshold}", wrong)

"""The acceptance test of a running server: fixed token ids, text through the ensemble, translations.

Upstream's client scripts print what comes and end with 0 even when nothing comes (BE v1.4
tools/gpt/end_to_end_test.py); here each expectation is a check that can fail.
"""

"""What one request may make this service collect, wait for or compute: one place for all such limits.

A limit holds before anything is collected: a validator that has seen a million wrong elements has already
made a million objects. tests/unit/ftserve/front/test_limits.py walks over every field of every request.
"""

from __future__ import annotations

# --- A body, before it is parsed ---
# Objects and lists, and values of all kinds, in one body: more than 2048 messages of some parts, or token ids
# for a mebibyte of JSON.
MAX_CONTAINERS, MAX_VALUES = 16_384, 262_144
# --- Fields ---
# Characters of names: of a model, or of a message's author.
LONGEST_NAME = 4096
# OpenAI's own limits of stop sequences and of texts for vectors.
MAX_STOPS, MAX_INPUTS = 4, 2048
# Characters of one stop sequence: it is looked for in every piece of an answer.
LONGEST_STOP = 1_000
# A request occupies the server so many times: answers to one prompt, and to all of them.
MAX_CHOICES, MAX_ANSWERS = 16, 64
MAX_MESSAGES, MAX_PARTS = 2_048, 1_024
# Tokens of one request that are rated, each by requests of its own to the server, and such requests at once.
MAX_RATED, RATED_AT_ONCE = 4_096, 16
# Alternatives to a token in an answer: OpenAI's limits of completions and of chats.
MAX_TOP, MAX_CHAT_TOP = 5, 20
# Tokens that end an answer, besides the model's own.
MAX_STOP_TOKENS = 64
# Token ids of one text. No model of the backend has a longer context.
MAX_TOKENS = 131_072
# Characters of one text, which the limit of a body bounds anyway.
LONGEST_TEXT = 1 << 24
# What a model may be asked for: lengths are 32 bits wide in the backend's requests.
LONGEST_ANSWER = 2**31 - 1
# --- A connection ---
# Seconds for the head of a request, and for its body.
HEAD_SECONDS, BODY_SECONDS = 10, 60
# Bytes of the head of a request, and of what may follow a chunked body.
HEAD_BYTES = 32 << 10
# Requests that wait behind the one that is being answered on their connection.
MAX_PIPELINED = 8
# A client that takes less than so many bytes in so many seconds, while more wait for it, is left.
SEND_SECONDS, SEND_BYTES = 20, 32 << 10
# Bytes and seconds of an unwanted body that are read after its refusal, so that the client can read that.
LINGER_BYTES, LINGER_SECONDS = 256 << 10, 1.0
# Bytes of all bodies that are being read, in multiples of the largest one.
MAX_BODIES = 64
# Files that are left for everything but connections: the server's, pipes, sockets to Triton.
OTHER_FILES = 64
# --- Templates and tokenizing, each text in a process of its own (workers.py) ---
# Seconds for one request, and for the start, which loads the tokenizer and compiles the template.
TEXT_SECONDS, START_SECONDS = 10, 60
# Bytes that a worker may take for a request, beyond those of a loaded tokenizer, and for its start.
TEXT_BYTES, START_BYTES = 384 << 20, 2 << 30
# Characters of a request whose texts one worker is kept free of.
LARGE_TEXT = 64 << 10

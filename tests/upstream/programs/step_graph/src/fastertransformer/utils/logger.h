#pragma once

#include <cstdio>

#define FT_LOG_WARNING(...) (std::fprintf(stderr, __VA_ARGS__), std::fputc('\n', stderr))

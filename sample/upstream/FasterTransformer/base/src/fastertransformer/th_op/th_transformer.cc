// The library for Python, by ctypes: converted weights answer without a server.
#include <patchlevel.h>  // of Python

#include <algorithm>
#include <exception>
#include <memory>
#include <string>

#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGpt.h"
#include "src/fastertransformer/utils/version.h"

namespace ft = fastertransformer;

namespace {

thread_local std::string last_error;

}  // namespace

extern "C" {

// Version of FasterTransformer and of the Python it was built for.
const char* ft_version()
{
    return FT_VERSION " for Python " PY_VERSION;
}

// Why the latest call of this thread failed.
const char* ft_last_error()
{
    return last_error.c_str();
}

// Writes at most `length` tokens that follow `last` to `tokens`; returns how many, or -1 (see ft_last_error).
int ft_generate(const char* folder, int tensor_para_size, unsigned last, int length, unsigned* tokens)
{
    try {
        const auto weight = std::make_shared<const ft::ParallelGptWeight>(
            ft::ParallelGptWeight::load(folder, tensor_para_size));
        const ft::ParallelGpt gpt(weight, false);
        const ft::Generation found = gpt.generate(last, static_cast<size_t>(length), weight->end_id)[0];
        std::transform(
            found.begin(), found.end(), tokens, [](const ft::Choice& choice) { return choice.token; });
        return static_cast<int>(found.size());
    } catch (const std::exception& error) {
        last_error = error.what();
        return -1;
    }
}

}  // extern "C"

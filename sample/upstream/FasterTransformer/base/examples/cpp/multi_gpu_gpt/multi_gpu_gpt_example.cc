// Prints what follows a token: multi_gpu_gpt_example TOKEN LENGTH [WEIGHTS TENSOR_PARA_SIZE]
#include <cstdlib>
#include <iostream>

#include "src/fastertransformer/models/multi_gpu_gpt/ParallelGpt.h"

namespace ft = fastertransformer;

int main(int argc, char** argv)
{
    if (argc != 3 && argc != 5) {
        std::cerr << "usage: " << argv[0] << " TOKEN LENGTH [WEIGHTS TENSOR_PARA_SIZE]\n";
        return 2;
    }
    const auto weight = std::make_shared<const ft::ParallelGptWeight>(
        argc == 5 ? ft::ParallelGptWeight::load(argv[3], std::atoi(argv[4])) : ft::ParallelGptWeight());
    const ft::ParallelGpt gpt(weight, false);
    const auto last = static_cast<uint32_t>(std::atoi(argv[1]));
    const auto length = static_cast<size_t>(std::atoi(argv[2]));
    for (const ft::Choice& choice : gpt.generate(last, length, weight->end_id)[0]) {
        std::cout << choice.token << '\n';
    }
    return 0;
}
